"""driple-report: a page to look at."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing

REDRAW_S = 0.1


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Makes the page; 0 done, also if runs were set aside, 2 bad input."""
    arguments = _parser().parse_args(argv)

    # Only now: --help must not wait for what the work needs.
    from driple.pipeline.reports.number_text import size
    from driple.pipeline.reports.page_layout import render
    from driple.pipeline.reports.registry import default_output, report_of

    output: Path = arguments.output or default_output(arguments.path)
    if output.is_dir():
        raise BadInput(f"--output {output}: a folder; expected the name of a file")
    progress = Progress()
    try:
        report = report_of(arguments.path, progress)
    finally:
        progress.clear()
    page = render(report, arguments.title)
    try:
        with replacing(output) as stream:
            stream.write(page)
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}; give --output FILE.html") from None
    if arguments.json:
        print(json.dumps({**report.facts, "page": str(output)}, indent=1, allow_nan=False))
    else:
        print(printable(f"{arguments.title or report.title} -> {output} ({size(len(page.encode()))})"))
        for note in report.notes:
            print(f"  {printable(note)}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-report",
        description="Make one self-contained HTML page of a sweep, a dataset or an inspector: traces with bursts,\n"
        "distributions, errors, quality flags, and what was set aside and why. The page loads nothing.",
        example="driple-report traces/p2w2",
    )
    parser.add_argument(
        "path",
        type=Path,
        metavar="DIR",
        help="folder of runs, folder or file of datasets, folder of an inspector or of several",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE.html", help="the page (default: DIR/report.html, or beside the file)"
    )
    parser.add_argument("--title", metavar="T", help="heading of the page")
    parser.add_argument("--json", action="store_true", help="print the facts of the page as JSON")
    return parser


class Progress:
    """A line on the terminal; silent where stderr is none."""

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
