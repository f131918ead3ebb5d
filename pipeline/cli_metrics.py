"""driple-metrics: burst and idle of any trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.errors import BadInput

if TYPE_CHECKING:
    from driple.pipeline.bursts.burst_metrics import Analysis, Bib
    from driple.pipeline.readers.base import Source
    from driple.pipeline.traces.series import Series


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, calls, prints; 0 done, 2 bad input."""
    arguments = _parser().parse_args(argv)
    if arguments.step is not None and not arguments.step > 0:
        raise BadInput(f"--step: expected more than 0, got {arguments.step:g}")
    # Only now: --help must not wait for what the work needs.
    from driple.pipeline.bursts.burst_metrics import analyse
    from driple.pipeline.readers.registry import read_source

    source = read_source(arguments.file, arguments.time, arguments.value, arguments.counter)
    analysed = [
        (series, analyse(series, step_s=arguments.step or source.steps_s.get(series.name))) for series in source.series
    ]
    if arguments.plot:
        from driple.pipeline.bursts.burst_plot import plot

        plot(arguments.plot, arguments.file.name, analysed)
    if arguments.perfetto:
        from driple.pipeline.bursts.perfetto import write_perfetto

        write_perfetto(arguments.perfetto, arguments.file.name, analysed)
    print(
        json.dumps(_json(arguments.file, source, analysed), allow_nan=False)
        if arguments.json
        else _text(source, analysed)
    )
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-metrics",
        description="Print burst duration, idle duration and burst amount of every series in a trace: ours (a run\n"
        "directory or its trace files), nvidia-smi CSV, Kineto and other Chrome traces, any CSV.\n"
        "docs/guides/metrics.md explains each number.",
        example="driple-metrics gpu.csv --plot gpu.png",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace, or a run directory")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    columns = parser.add_argument_group("columns of a CSV or Parquet file, by name or by number from 1")
    columns.add_argument("--time", metavar="COLUMN", help="time; found by its name if left out")
    columns.add_argument(
        "--value", metavar="COLUMN", action="append", default=[], help="a rate or a level; can be given again"
    )
    columns.add_argument(
        "--counter", metavar="COLUMN", action="append", default=[], help="bytes that only grow; can be given again"
    )
    parser.add_argument("--step", type=float, metavar="S", help="training step in seconds, where you know it: a guide")
    files = parser.add_argument_group("files to write")
    files.add_argument("--plot", type=Path, metavar="OUT.png", help="picture of the series with bursts shaded")
    files.add_argument("--perfetto", type=Path, metavar="OUT.json", help="series and bursts for ui.perfetto.dev")
    return parser


def _json(file: Path, source: Source, analysed: Sequence[tuple[Series, Analysis]]) -> dict[str, Any]:
    return {
        "file": str(file),
        "read_as": source.what,
        "notes": list(source.notes),
        "series": {series.name: {"unit": series.unit, **analysis.bib.to_json()} for series, analysis in analysed},
    }


_HEADER = ("series", "pattern", "burst", "idle", "burst amount", "bursts", "period", "refresh", "flags")


def _text(source: Source, analysed: Sequence[tuple[Series, Analysis]]) -> str:
    rows = [_HEADER, *(_row(series, analysis.bib) for series, analysis in analysed)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = [f"{source.what}", *(f"  {note}" for note in source.notes), ""]
    for row in rows:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join(map(printable, lines))


def _row(series: Series, bib: Bib) -> tuple[str, ...]:
    finer = [name for name in ("burst_s", "idle_s") if f"{name}_finer_than_refresh" in bib.flags]
    about = {"burst_s": "", "idle_s": "", **dict.fromkeys(finer, "~")}  # not resolved: no more than a guess
    return (
        series.name,
        bib.pattern,
        about["burst_s"] + _duration(bib.burst_s),
        about["idle_s"] + _duration(bib.idle_s),
        _amount(bib.burst_amount, series.unit),
        str(bib.bursts),
        _duration(bib.period_s),
        _duration(bib.refresh_s),
        " ".join(bib.flags),
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.3g} ms" if 0 < seconds < 1 else f"{seconds:.4g} s"


def _amount(amount: float | None, unit: str) -> str:
    if amount is None:
        return "-"
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(amount) >= scale and unit.endswith("/s"):
            return f"{amount / scale:.4g} {prefix}{unit}"
    return f"{amount:.4g} {unit}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
