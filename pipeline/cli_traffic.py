"""driple-traffic: what training jobs send over the network."""

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
from driple.pipeline.progress_line import ProgressLine
from driple.pipeline.reports.number_text import UNKNOWN, duration, percent, plain, size

if TYPE_CHECKING:
    from driple.pipeline.traffic.traffic_job import JobKind, TrafficJob

FORMATS = ("svg", "png")
LEAST_MS, MOST_MS = 1.0, 1000.0


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Prints the traffic. Returns 0, or 2 for bad input."""
    arguments = _parser().parse_args(argv)
    for bin_ms in arguments.bins:
        if not LEAST_MS <= bin_ms <= MOST_MS:
            raise BadInput(f"--bins: expected {LEAST_MS:g} to {MOST_MS:g} (ms), got {bin_ms:g}")
    require("numpy", "pyarrow", *(["matplotlib"] if arguments.figures else []))
    # Imported late, so that --help is fast.
    from driple.pipeline.traffic.find_jobs import find_jobs
    from driple.pipeline.traffic.study_tables import study_tables

    progress = ProgressLine()
    try:
        found = find_jobs(
            arguments.path, lambda what, done, total: progress.show(f"{what}: {done} of {total}", done, total)
        )
    finally:
        progress.clear()
    if arguments.perfetto and len(found.jobs) != 1:
        raise BadInput(f"--perfetto: expected one job, and there are {len(found.jobs)}")
    bins_s = [bin_ms / 1000 for bin_ms in arguments.bins]
    tables = study_tables(found.jobs, bins_s) if arguments.csv or arguments.figures or arguments.json else []
    folders = {name: getattr(arguments, name) for name in ("csv", "figures") if getattr(arguments, name)}
    for name, path in folders.items():
        _make_folder(f"--{name}", path)
    if arguments.csv:
        for table in tables:
            table.write_csv(arguments.csv)
    if arguments.figures:
        from driple.pipeline.traffic.study_figures import write_figures

        write_figures(arguments.figures, tables, arguments.format)
    if arguments.perfetto:
        from driple.pipeline.traffic.traffic_perfetto import write_traffic_perfetto

        write_traffic_perfetto(arguments.perfetto, found.jobs[0])
    if arguments.json:
        plain_tables = {
            table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in tables
        }
        aside = [{"path": str(path), "reason": reason} for path, reason in found.set_aside]
        jobs = [job.to_json() for job in found.jobs]
        found_all = {"provenance": found.provenance, "jobs": jobs, "tables": plain_tables, "set_aside": aside}
        print(json.dumps(found_all, allow_nan=False))
        return 0
    if is_simulated(found.provenance):
        print("SIMULATED: simulated runs, not measured ones")
    print("\n".join(map(printable, _text(found.jobs))).replace(UNKNOWN, "-"))
    for path, reason in found.set_aside:
        print(printable(f"set aside: {path}: {reason}"))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-traffic",
        description="Print what training jobs send: volume by task and pair, flows, throughput, burstiness,\n"
        "retransmissions, loss, and bytes per step next to the formula of the strategy. Reads runs (packet files, or\n"
        "counters and flow tables), pcap and pcapng files, and folders of captures (docs/guides/traffic.md).",
        example="driple-traffic traces/dml-traffic --figures figures",
    )
    parser.add_argument(
        "path", type=Path, nargs="+", metavar="PATH", help="runs or folders of runs, captures or folders of captures"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--bins",
        type=float,
        nargs="+",
        default=[MOST_MS],
        metavar="MS",
        help=f"bins of the table of throughput, {LEAST_MS:g} to {MOST_MS:g} ms (default: {MOST_MS:g})",
    )
    files = parser.add_argument_group("files to write")
    files.add_argument("--csv", type=Path, metavar="DIR", help="all tables as CSV")
    files.add_argument("--figures", type=Path, metavar="DIR", help="the figures of the traffic study")
    files.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of figures (default: %(default)s)")
    files.add_argument("--perfetto", type=Path, metavar="OUT.json", help="throughput, flows and steps of one job")
    return parser


def _make_folder(option: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{option} {path}: {error.strerror}") from None


_HEADER = (
    "job",
    "condition",
    "from",
    "sent",
    "flows",
    "peak/mean 10 ms",
    "retransmitted",
    "lost",
    "step sends",
    "of formula",
    "time",
)


def _text(jobs: Sequence[TrafficJob]) -> list[str]:
    lines = _table([_HEADER, *map(_row, jobs)])
    for job in jobs if len(jobs) == 1 else ():
        matrix = job.events.matrix()
        ends = sorted({task for pair in matrix for task in pair})
        cells = [[size(matrix[a, b]) if (a, b) in matrix else "" for b in ends] for a in ends]
        if matrix:
            lines += ["", "bytes between tasks"]
            lines += _table([("from \\ to", *ends), *((a, *row) for a, row in zip(ends, cells, strict=True))])
        if job.sent_per_step():
            formula, relative = job.formula(), job.relative_to_formula()
            rows = [
                (task, size(sent), size(formula[task].sent) if task in formula else "", plain(relative.get(task)))
                for task, sent in job.sent_per_step().items()
            ]
            lines += [
                "",
                "bytes that a task sends in a step",
                *_table([("task", job.provenance, "formula", "ratio"), *rows]),
            ]
        bursts = ((f"{1000 * bin_s:g} ms", plain(value)) for bin_s, value in job.burstiness().items())
        lines += ["", "peak-to-mean", *_table([("bin", "ratio"), *bursts])]
    return lines + [f"{job.name}: {note}" for job in jobs for note in job.notes]


def _row(job: TrafficJob) -> tuple[str, ...]:
    again, lost = job.retransmitted(), job.lost()
    steps = job.sent_per_step()
    relative = job.relative_to_formula()
    return (
        job.name,
        _condition(job.kind),
        job.source,
        size(job.best.total),
        UNKNOWN if job.flow_count is None else str(job.flow_count),
        plain(job.burstiness()[0.01]),
        percent(again.share) if again is not None else _counted_again(job),
        UNKNOWN if lost is None else percent(lost.share),
        size(max(steps.values())) if steps else UNKNOWN,
        f"{min(relative.values()):.3f}-{max(relative.values()):.3f}" if relative else UNKNOWN,
        duration(job.duration_s),
    )


def _counted_again(job: TrafficJob) -> str:
    return UNKNOWN if job.counted_again is None else f"{job.counted_again} segments"


def _condition(kind: JobKind) -> str:
    loss = f"{kind.loss_pct:g} % loss" if kind.loss_pct else None
    return " ".join(part for part in (loss, kind.congestion) if part) or UNKNOWN


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


if __name__ == "__main__":
    sys.exit(main())
