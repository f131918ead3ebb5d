"""The command's words, none of which needs TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from driple.contracts.zoo import MODELS
from driple.workloads.cli import main


def test_models_lists_the_whole_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n{name} " in said for name in MODELS)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["task", "--help"], ["graph", "--help"], ["warm", "--help"], ["models"]]
)
def test_help_and_lists_load_neither_tensorflow_nor_arrow(arguments: list[str]) -> None:
    program = (
        "import sys\nfrom driple.workloads.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit as end: assert not end.code\n"
        "assert not {'tensorflow', 'tf_keras', 'pyarrow', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["graph", "--model", "resnet-20", "--out", "g"], "did you mean 'resnet20'?"),
        (["graph", "--model", "resnet20", "--dataset", "cifar", "--out", "g"], "did you mean 'cifar10'?"),
        (["graph", "--model", "resnet20", "--setting", "x", "--out", "g"], "is not a setting"),
        (["graph", "--model", "resnet20", "--task", "ps:0", "--out", "g"], "has no graph"),
        (["graph", "--model", "resnet20", "--task", "worker:5", "--out", "g"], "no task 'worker:5'"),
        (["graph", "--model", "resnet20", "--jobs", "0", "--out", "g"], "--jobs: expected 1 or more"),
        (
            ["graph", "--model", "resnet20", "--batch-size", "0", "--out", "g"],
            "batch_size: expected 1 to 16777216, got 0",
        ),
        (["graph", "--model", "resnet20", "--batch-size", "99999999999999", "--out", "g"], "batch_size: expected 1 to"),
        (
            ["graph", "--model", "nmt_small", "--size", "1024", "--batch-size", "9999999", "--out", "g"],
            "most 2097151 seq",
        ),
        (["graph", "--model", "resnet20", "--size", "0", "--out", "g"], "image_size: expected 1 to 4096, got 0"),
        (["graph", "--model", "resnet20", "--size", "-3", "--out", "g"], "image_size: expected 1 to 4096, got -3"),
        (["graph", "--model", "nmt_small", "--size", "99999", "--out", "g"], "sequence_length: expected 1 to 65536"),
        (["graph", "--model", "resnet20", "--width", "inf", "--out", "g"], "width: expected 0.01 to 64, got inf"),
        (["graph", "--model", "resnet20", "--width", "nan", "--out", "g"], "width: expected 0.01 to 64, got nan"),
        (["graph", "--model", "resnet20", "--width", "1e9", "--out", "g"], "width: expected 0.01 to 64"),
        (["graph", "--model", "ncf", "--size", "8", "--out", "g"], "size: movielens has none"),
        (["graph", "--model", "net.py:net", "--out", "g"], "name its dataset with --dataset"),
        (["graph", "--job", "none.json", "--out", "g"], "none.json: No such file"),
    ],
)
def test_bad_input_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["task"], ["graph", "--out", "g"], ["graph", "--model", "a", "--all"]]
)
def test_wrong_usage_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
