"""driple-build-dataset: run directories to one dataset per setting."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.command_guard import require
from driple.contracts.setting import Setting

if TYPE_CHECKING:
    from driple.pipeline.datasets.build import Report, SettingReport

BAR = 30
REDRAW_S = 0.1


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Builds datasets.

    Returns:
        0 when runs were used, also if others were set aside; 1 when not one could be; 2 for bad input.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if bool(arguments.traces) == bool(arguments.published):
        parser.error("give folders of traces, or --published FILE")
    if arguments.setting and len(arguments.published) != 1:
        parser.error("--setting goes with exactly one --published FILE")

    require("numpy", "pyarrow", "joblib", "igraph")
    from driple.pipeline.datasets import engine
    from driple.pipeline.datasets.build import Options, build, build_published

    logging.basicConfig(format="driple-build-dataset: %(message)s", level=logging.WARNING)
    options = Options(
        output=arguments.output,
        engine=engine.parse(arguments.engine, arguments.jobs),
        rebuild=arguments.rebuild,
        prune=arguments.prune,
    )
    require(*{engine.DASK: ("distributed",), engine.RAY: ("ray",)}.get(options.engine.kind, ()))
    if arguments.published:
        setting = Setting.parse(arguments.setting) if arguments.setting else None
        report = build_published(arguments.published, setting, options)
    else:
        progress = Progress()
        try:
            report = build(arguments.traces, options, progress)
        finally:
            progress.clear()
    print(json.dumps(to_json(report), indent=1) if arguments.json else to_text(report))
    return report.exit_code


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-build-dataset",
        description="Turn run directories into one dataset per setting: a row per task of a run, graph and metrics.\n"
        "Unchanged runs are not worked on again. A run that cannot be used is set aside with its reason.",
        example="driple-build-dataset traces/",
    )
    parser.add_argument("traces", type=Path, nargs="*", metavar="TRACES", help="folder with runs, at any depth")
    parser.add_argument(
        "--output", type=Path, default=Path("datasets"), metavar="DIR", help="where datasets are (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes of the local engine (default: one per processor)"
    )
    parser.add_argument(
        "--engine",
        default="local",
        metavar="WHERE",
        help="local, or a cluster that is there: dask://host:port, ray://host:port, ray://auto (default: %(default)s)",
    )
    parser.add_argument("--rebuild", action="store_true", help="work on unchanged runs too")
    parser.add_argument("--prune", action="store_true", help="drop rows whose run is no longer among the traces")
    parser.add_argument(
        "--published",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.pkl",
        help="import a dataset that the authors of Driple published; may be given several times",
    )
    parser.add_argument(
        "--setting", metavar="NAME", help="of the published file, where its name does not say it (v100-p1w2-pcie)"
    )
    return parser


class Progress:
    """A bar on the terminal; silent where stderr is none."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._drawn = False
        self._next = 0.0

    def __call__(self, done: int, total: int, set_aside: int) -> None:
        now = time.monotonic()
        if not self._on or (now < self._next and done < total):
            return
        self._next = now + REDRAW_S
        self._drawn = True
        filled = BAR * done // max(1, total)
        aside = f", {set_aside} set aside" if set_aside else ""
        print(f"\r[{'#' * filled:<{BAR}}] {done}/{total} runs{aside}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def to_json(report: Report) -> dict[str, object]:
    """The report for programs."""
    return {
        "runs": report.found,
        "computed": report.computed,
        "settings": {done.setting: _setting_json(done) for done in report.settings},
        "set_aside": [dataclasses.asdict(left) for left in report.set_aside],
    }


def _setting_json(done: SettingReport) -> dict[str, object]:
    plain = dataclasses.asdict(done)
    del plain["setting"]
    return plain


def to_text(report: Report) -> str:
    """The report for people."""
    lines = [line for done in report.settings for line in _setting_lines(done)]
    aside = len(report.set_aside)
    if aside:
        lines += ["", f"set aside, {aside} of {report.found}:"]
        for left in report.set_aside:
            lines.append(f"  {left.run}: {left.reason}")
        unforeseen = next((left.traceback for left in report.set_aside if left.traceback), None)
        if unforeseen:
            lines += ["  the first that nobody foresaw (--json has all of them):", *unforeseen.splitlines()]
        lines.append("")
    used = report.found - aside
    lines.append(f"{report.found} found, {used} used" + (f", {aside} set aside" if aside else ""))
    return "\n".join(printable(line) for line in lines)


def _setting_lines(done: SettingReport) -> list[str]:
    counts = [f"{done.added} added", f"{done.replaced} replaced", f"{done.kept} kept"]
    counts += [f"{done.removed} removed"] if done.removed else []
    state = "" if done.written else " (file unchanged)" if done.rows else " (file removed)"
    lines = [
        f"{done.setting}: {done.rows} rows ({', '.join(counts)}) of {done.runs} runs, {done.graphs} graphs, "
        f"{done.families} model families -> {done.file}{state}"
    ]
    for split, sides in done.empty.items():
        if sides and done.rows:
            lines.append(f"  split {split}: no rows in {' and '.join(sides)}")
    if done.by_older_rules:
        lines.append(f"  {done.by_older_rules} rows were made by older rules from runs that are gone")
    return lines


if __name__ == "__main__":
    sys.exit(main())
