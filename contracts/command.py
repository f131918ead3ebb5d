"""What all commands share: help that ends with an example, one-line errors, exit codes."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from typing import IO, Any, NoReturn, Optional, Protocol, Sequence

from driple.contracts.errors import DripleError, NotInThisVersion


class Main(Protocol):
    """A command's entry: arguments (the process's own if None) to exit code."""

    def __call__(self, argv: Optional[Sequence[str]] = None) -> int:
        """Runs the command."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line, and whose help ends with a real example."""

    def __init__(self, *, prog: str, description: str, example: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a later option must not change what a short form in a user's script means
        )
        self.add_argument("--version", action=_Version, help="show the version and exit")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    """`--version`, looked up only when asked for: importlib.metadata costs as much as the rest of a help page."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('driple')}")
        parser.exit()


def command(main: Main) -> Main:
    """Wraps a command's `main`: our errors become lines on stderr and an exit code, a bug keeps its traceback."""

    def guarded(argv: Optional[Sequence[str]] = None) -> int:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal without our letters is no reason to fail
        code = 0
        try:
            try:
                code = main(argv)
            except DripleError as error:
                code = error.exit_code
                for line in error.lines():
                    print(printable(line), file=sys.stderr)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:  # `driple-run ... | head`: the reader has seen enough
            _discard(sys.stdout, sys.stderr)
        except KeyboardInterrupt:
            code = 130
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO) or error.filename is not None:
                raise
            _discard(sys.stdout)
            print(f"cannot write the output: {error.strerror}", file=sys.stderr)
            code = 1
        return code

    guarded.__doc__ = main.__doc__
    return guarded


def _discard(*streams: Optional[IO[str]]) -> None:
    """Lets what is still buffered go nowhere, or Python complains of it once more at exit."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """`text` on one line, with everything a terminal could take for a command made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def planned_command(prog: str, description: str, example: str) -> Main:
    """A command that has its name and its help and is not built yet: it says so and ends with 2."""
    state = f"Not in this version: {prog} is planned, and CHANGELOG.md will say when it lands."

    def main(argv: Optional[Sequence[str]] = None) -> int:
        parser = CommandParser(prog=prog, description=f"{description}\n\n{state}", example=example)
        parser.parse_known_args(argv)
        raise NotInThisVersion(f"{prog}: error: not in this version yet; see CHANGELOG.md for what is")

    return command(main)
