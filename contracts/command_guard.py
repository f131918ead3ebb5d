"""What stands around every command: one-line errors and exit codes. Without a parser, which not every command needs."""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Optional, Protocol, Sequence

from driple.contracts.errors import DripleError
from driple.contracts.run_dir import NO_ROOM


class Main(Protocol):
    """A command's entry: arguments (the process's own if None) to exit code."""

    def __call__(self, argv: Optional[Sequence[str]] = None) -> int:
        """Runs the command."""


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
            if error.errno not in NO_ROOM:
                raise
            if error.filename is None:  # not said by `replacing`: so it is what we print
                _discard(sys.stdout)
            name = "the output" if error.filename is None else printable(str(error.filename))
            print(f"cannot write {name}: {error.strerror}", file=sys.stderr)
            code = 1
        return code

    guarded.__doc__ = main.__doc__
    return guarded


def tell(text: str) -> None:
    """Prints what a command ends with. A reader that has gone is no reason for another exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _discard(sys.stdout)


def _discard(*streams: Optional[IO[str]]) -> None:
    """Lets what is still buffered go nowhere, or Python complains of it once more at exit."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    """`text` on one line, with everything a terminal could take for a command made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
