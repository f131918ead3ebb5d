"""driple-report: writes an HTML page about a sweep, a dataset or an inspector."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command, printable
from driple.pipeline.progress_line import ProgressLine


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page. Returns 0, even if runs were set aside, or 2 for bad input."""
    arguments = _parser().parse_args(argv)

    # Imported late, so that --help is fast.
    from driple.pipeline.reports.number_text import size
    from driple.pipeline.reports.registry import write_report

    progress = ProgressLine()

    def show(what: str, done: int, total: int) -> None:
        progress.show(f"{what}: {done} of {total}", done, total)

    try:
        report = write_report(arguments.path, output=arguments.output, title=arguments.title, progress=show)
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


if __name__ == "__main__":
    sys.exit(main())
