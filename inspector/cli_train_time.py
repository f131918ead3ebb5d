"""driple-train-time: the measured datasets of all settings to one model of step times."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.setting import Setting


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done; 1 a file cannot be written; 2 bad input."""
    arguments = _parser().parse_args(argv)
    from driple.inspector.time.train_time import train_time

    settings = None if arguments.setting is None else [str(Setting.parse(one)) for one in arguments.setting]
    shown = _Shown()
    found = train_time(arguments.datasets, settings=settings, output=arguments.output, progress=shown)
    shown.clear()
    if arguments.json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return 0
    print("\n".join(map(printable, str(found).splitlines())))
    print(f"\n-> {printable(str(found.folder))}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="driple-train-time",
        description="Train one model of step times on the measured datasets of all settings, and print its errors on\n"
        "families, settings and machines that it had not seen. driple-predict uses it.",
        example="driple-train-time --datasets datasets",
    )
    add = parser.add_argument
    add("--datasets", type=Path, default=Path("datasets"), metavar="DIR", help="folder (default: %(default)s)")
    add("--setting", nargs="+", metavar="NAME", help="settings to learn from (default: all measured ones)")
    add("--output", type=Path, default=Path("inspectors"), metavar="DIR", help="inspectors (default: %(default)s)")
    add("--json", action="store_true", help="print the errors as JSON")
    return parser


class _Shown:
    """One line of progress on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()

    def __call__(self, part: str, done: int, total: int) -> None:
        if self._on:
            print(f"\r\x1b[K{part}: {done} of {total}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
