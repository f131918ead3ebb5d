"""driple-report: writes an HTML page about a sweep, a dataset or an inspector."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command, printable

REDRAW_S = 0.1


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page. Returns 0, even if runs were set aside, or 2 for bad input."""
    arguments = _parser().parse_args(argv)

    # Imported late, so that --help is fast.
    from driple.pipeline.reports.number_text import size
    from driple.pipeline.reports.registry import write_report

    progress = ProgressLine()
    try:
        report = write_report(arguments.path, output=arguments.output, title=arguments.title, progress=progress)
    finally:
        progress.clear()
    if arguments.json:
        print(json.dumps({**report.facts, "page": str(report.path)}, indent=1, allow_nan=False))
    else:
        print(printable(f"{report.title} -> {report.path} ({size(report.size_bytes)})"))
        for note in report.notes:
            print(f"  {printable(note)}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-report",
        description="Write a self-contained HTML page about a sweep, a dataset or an inspector: traces with bursts,\n"
        "distributions, errors, quality flags, and what was set aside and why. It loads nothing from the network.",
        example="driple-report traces/p2w2",
    )
    parser.add_argument(
        "path",
        type=Path,
        metavar="DIR",
        help="folder of runs, dataset or folder of datasets, inspector or folder of inspectors",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE.html", help="the page (default: DIR/report.html, or next to the file)"
    )
    parser.add_argument("--title", metavar="T", help="heading of the page")
    parser.add_argument("--json", action="store_true", help="print the content of the page as JSON")
    return parser


class ProgressLine:
    """A progress line on stderr if it is a terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._next = 0.0
        self._drawn = False

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._on and (now >= self._next or done == total):
            self._next, self._drawn = now + REDRAW_S, True
            print(f"\r{what}: {done} of {total}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
