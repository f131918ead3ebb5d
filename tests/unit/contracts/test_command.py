from __future__ import annotations

from collections.abc import Callable

import pytest

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.errors import BadInput, DripleError, Fault, FileFaults, RunFailed, UnknownName


def raising(error: BaseException) -> Callable[..., int]:
    def main(argv: object = None) -> int:
        raise error

    return command(main)


@pytest.mark.parametrize(
    ("error", "code"), [(BadInput("x"), 2), (RunFailed("x"), 1), (DripleError("x"), 1), (KeyboardInterrupt(), 130)]
)
def test_errors_become_exit_codes(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error)([]) == code
    assert capsys.readouterr().err in ("x\n", "")


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())([])


def test_every_fault_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [Fault("a.yaml", 3, "steps", "wrong\n\x1b[2J"), Fault("a.yaml", None, "", "and more")]
    assert raising(FileFaults(faults))([]) == 2
    assert capsys.readouterr().err == "a.yaml:3: steps: wrong\\n\\x1b[2J\na.yaml: and more\n"


def test_wrong_arguments_are_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser(prog="driple-x", description="d", example="driple-x 1")
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args(["--nope"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "driple-x: error: unrecognized arguments: --nope (see driple-x --help)\n"


def test_unknown_name_shows_nearest_and_all() -> None:
    assert str(UnknownName("model", "resnet65", ("vgg16", "resnet56"))) == (
        "unknown model 'resnet65'; did you mean 'resnet56'? (known: vgg16, resnet56)"
    )
    assert "did you mean" not in str(UnknownName("model", "qqq", ("vgg16",)))


def test_printable_keeps_letters_of_all_languages() -> None:
    assert printable("naïve – 模型\x00\u202e") == "naïve – 模型\\x00\\u202e"
