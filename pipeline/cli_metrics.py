"""driple-metrics: burst metrics of any trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import is_simulated
from driple.contracts.run_dir import replacing
from driple.pipeline.reports.number_text import UNKNOWN, amount, duration

if TYPE_CHECKING:
    from driple.pipeline.bursts.trace_metrics import Metrics, SeriesMetrics


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Prints the metrics. Returns 0, or 2 for bad input."""
    arguments = _parser().parse_args(argv)
    require(*(["matplotlib"] if arguments.plot else []), *(["pandas"] if arguments.csv else []))
    # Imported late, so that --help is fast.
    from driple.pipeline.bursts.trace_metrics import metrics

    found = metrics(
        arguments.file, time=arguments.time, values=arguments.value, counters=arguments.counter, step_s=arguments.step
    )
    title = f"{arguments.file.name}{' (simulated)' if is_simulated(found.provenance) else ''}"
    if arguments.plot:
        from driple.pipeline.bursts.burst_plot import plot

        plot(arguments.plot, title, found.analysed)
    if arguments.perfetto:
        from driple.pipeline.bursts.perfetto import write_perfetto

        write_perfetto(arguments.perfetto, title, found.analysed)
    if arguments.csv:
        _write_csv(found, arguments.csv)
    print(json.dumps(found.to_json(), allow_nan=False) if arguments.json else _text(found))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-metrics",
        description="Print burst duration, idle duration and burst amount of each series of a trace: a run directory,\n"
        "a trace file of driple-sample, nvidia-smi CSV, Kineto and other Chrome traces, any CSV.\n"
        "docs/guides/metrics.md explains each number.",
        example="driple-metrics gpu.csv --plot gpu.png",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace file or a run directory")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    columns = parser.add_argument_group("columns of a CSV or Parquet file, by name or by number from 1")
    columns.add_argument("--time", metavar="COLUMN", help="time (default: found by its name)")
    columns.add_argument(
        "--value", metavar="COLUMN", action="append", default=[], help="a rate or a level; can be repeated"
    )
    columns.add_argument(
        "--counter",
        metavar="COLUMN",
        action="append",
        default=[],
        help="a counter, such as bytes sent; can be repeated",
    )
    parser.add_argument("--step", type=float, metavar="S", help="training step in seconds, if known")
    files = parser.add_argument_group("files to write")
    files.add_argument("--plot", type=Path, metavar="OUT.png", help="plot of the series with shaded bursts")
    files.add_argument("--perfetto", type=Path, metavar="OUT.json", help="series and bursts for ui.perfetto.dev")
    files.add_argument("--csv", type=Path, metavar="OUT.csv", help="the metrics as a table")
    return parser


def _write_csv(found: Metrics, path: Path) -> None:
    table = found.to_frame()
    try:
        with replacing(path) as stream:
            table.to_csv(stream, index=False)
    except OSError as error:
        raise BadInput(f"--csv {path}: {error.strerror}") from None


_HEADER = ("series", "pattern", "burst", "idle", "burst amount", "bursts", "period", "refresh", "flags")


def _text(found: Metrics) -> str:
    rows = [_HEADER, *map(_row, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    simulated = ["SIMULATED: a simulated run, not a measured one"] if is_simulated(found.provenance) else []
    lines = [*simulated, found.read_as, *(f"  {note}" for note in found.notes), ""]
    for row in rows:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join(map(printable, lines)).replace(UNKNOWN, "-")


def _row(one: SeriesMetrics) -> tuple[str, ...]:
    bib = one.bib
    # A duration that the source does not resolve is an estimate.
    burst, idle = ("~" if f"{name}_finer_than_refresh" in bib.flags else "" for name in ("burst_s", "idle_s"))
    return (
        one.name,
        bib.pattern,
        burst + duration(bib.burst_s),
        idle + duration(bib.idle_s),
        amount(bib.burst_amount, one.unit),
        str(bib.bursts),
        duration(bib.period_s),
        duration(bib.refresh_s),
        " ".join(bib.flags),
    )


if __name__ == "__main__":
    sys.exit(main())
