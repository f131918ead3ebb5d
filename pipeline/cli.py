"""driple-build-dataset: builds one dataset per setting from run directories."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.command_guard import require
from driple.contracts.formats.dataset import SIMULATED_FOLDER, is_simulated
from driple.pipeline.progress_line import ProgressLine

if TYPE_CHECKING:
    from driple.pipeline.datasets.build_report import BuildResult, SettingReport

BAR = 30
_OF_TRACES = ("jobs", "engine", "rebuild", "prune", "include_loopback")


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Builds datasets.

    Returns:
        0 if runs were used, even if others were set aside; 1 if none could be used; 2 for bad input.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    merges = arguments.merge or bool(arguments.select)
    if (merges or arguments.card) and (not arguments.sources or arguments.published):
        parser.error("--merge, --select and --card go with folders of datasets")
    if arguments.card and merges:
        parser.error("--card goes with folders of datasets, without --merge and --select")
    if arguments.about and not arguments.card:
        parser.error("--about goes with --card")
    if bool(arguments.sources) == bool(arguments.published):
        parser.error("give folders of traces, or --published FILE")
    if arguments.setting and len(arguments.published) != 1:
        parser.error("--setting goes with exactly one --published FILE")
    of_traces = [option for option in _OF_TRACES if getattr(arguments, option) != parser.get_default(option)]
    if of_traces and (merges or arguments.card):
        parser.error(f"--{of_traces[0].replace('_', '-')} goes with traces, not with --merge, --select or --card")

    require("numpy", "pyarrow", "joblib")
    if arguments.card:
        from driple.pipeline.datasets.croissant import parse_about, write_card

        cards = [write_card(folder, parse_about(arguments.about)) for folder in arguments.sources]
        print(json.dumps([str(card) for card in cards]) if arguments.json else "\n".join(map(str, cards)))
        return 0
    from driple.pipeline.datasets.build import build_dataset, import_published
    from driple.pipeline.datasets.merge import merge_datasets

    logging.basicConfig(format="driple-build-dataset: %(message)s", level=logging.WARNING)
    if merges:
        result = merge_datasets(arguments.sources, output=arguments.output, select=arguments.select)
        print(json.dumps(to_json(result), indent=1) if arguments.json else merge_text(result))
        return 0
    if arguments.published:
        result = import_published(
            arguments.published, setting=arguments.setting, output=arguments.output, rebuild=arguments.rebuild
        )
    else:
        progress = ProgressBar()
        try:
            result = build_dataset(
                arguments.sources,
                output=arguments.output,
                engine=arguments.engine,
                jobs=arguments.jobs,
                rebuild=arguments.rebuild,
                prune=arguments.prune,
                include_loopback=arguments.include_loopback,
                progress=progress,
            )
        finally:
            progress.clear()
    print(json.dumps(to_json(result), indent=1) if arguments.json else to_text(result))
    return result.exit_code


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-build-dataset",
        description="Build one dataset per setting from run directories. Each row is a task of a run with its graph\n"
        "and metrics. Rows of simulated runs go to DIR/simulated, apart from measured ones. Unchanged runs are\n"
        "skipped. Runs that cannot be used are set aside with the reason.",
        example="driple-build-dataset traces/",
    )
    parser.add_argument(
        "sources",
        type=Path,
        nargs="*",
        metavar="TRACES",
        help="folder with run directories, any depth; with --merge, --select and --card a folder of datasets",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("datasets"), metavar="DIR", help="folder of datasets (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes of the local engine (default: one per processor)"
    )
    parser.add_argument(
        "--engine",
        default="local",
        metavar="WHERE",
        help="local, or a running cluster: dask://host:port, ray://host:port, ray://auto (default: %(default)s)",
    )
    parser.add_argument("--rebuild", action="store_true", help="process unchanged runs too")
    parser.add_argument("--prune", action="store_true", help="drop rows whose run is no longer among the traces")
    parser.add_argument(
        "--include-loopback",
        action="store_true",
        help="use runs that did not have the network of their setting; flags their rows",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="merge datasets to one per setting in DIR; the same rows of a run are taken once, different ones refused",
    )
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="COLUMN=VALUE,...",
        help="merge only rows for which all conditions hold: = or !=; a text with *, a number, a range such as 16..64",
    )
    parser.add_argument(
        "--card",
        action="store_true",
        help="write croissant.json into each folder of datasets: a machine-readable card of its files and columns",
    )
    parser.add_argument(
        "--about",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value of the card: name, license, url, creator, version, citeAs; those of the card that is there stay",
    )
    parser.add_argument(
        "--published",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.pkl",
        help="import a dataset published by the authors of Driple; can be repeated",
    )
    parser.add_argument(
        "--setting", metavar="NAME", help="setting of the published file if its name lacks it (v100-p1w2-pcie)"
    )
    return parser


class ProgressBar(ProgressLine):
    """A bar of the runs that are done."""

    def __call__(self, done: int, total: int, set_aside: int) -> None:
        aside = f", {set_aside} set aside" if set_aside else ""
        self.show(f"[{'#' * (BAR * done // max(1, total)):<{BAR}}] {done}/{total} runs{aside}", done, total)


def to_json(result: BuildResult) -> dict[str, object]:
    """The result for programs."""
    settings = {_name(done): dataclasses.asdict(done) for done in result.settings}
    for done in settings.values():
        del done["setting"]
    aside = [dataclasses.asdict(left) for left in result.set_aside]
    return {
        "provenance": result.provenance,
        "runs": result.found,
        "computed": result.computed,
        "settings": settings,
        "set_aside": aside,
    }


def to_text(result: BuildResult) -> str:
    """The result for people."""
    simulated = [done.file for done in result.settings if is_simulated(done.provenance)]
    lines = [f"SIMULATED: {', '.join(simulated)}: rows of simulated runs, not measured"] if simulated else []
    lines += [line for done in result.settings for line in _setting_lines(done)]
    aside = len(result.set_aside)
    if aside:
        lines += ["", f"set aside, {aside} of {result.found}:"]
        for left in result.set_aside:
            lines.append(f"  {left.run}: {left.reason}")
        unforeseen = next((left.traceback for left in result.set_aside if left.traceback), None)
        if unforeseen:
            lines += ["  the first unexpected error (--json has all of them):", *unforeseen.splitlines()]
        lines.append("")
    used = result.found - aside
    lines.append(f"{result.found} found, {used} used" + (f", {aside} set aside" if aside else ""))
    return "\n".join(printable(line) for line in lines)


def merge_text(result: BuildResult) -> str:
    """The result of a merge for people."""
    lines = []
    for done in result.settings:
        state = "" if done.written else " (file unchanged)"
        lines.append(f"{_name(done)}: {done.rows} rows of {done.runs} runs, {done.graphs} graphs -> {done.file}{state}")
        lines += _notes(done)
    taken = sum(done.runs for done in result.settings)
    lines.append(f"{result.found} runs found, {taken} taken")
    return "\n".join(printable(line) for line in lines)


def _name(done: SettingReport) -> str:
    """The setting, with the folder of simulated rows before it."""
    return f"{SIMULATED_FOLDER}/{done.setting}" if is_simulated(done.provenance) else done.setting


def _setting_lines(done: SettingReport) -> list[str]:
    counts = [f"{done.added} added", f"{done.replaced} replaced", f"{done.kept} kept"]
    counts += [f"{done.removed} removed"] if done.removed else []
    state = "" if done.written else " (file unchanged)" if done.rows else " (file removed)"
    lines = [
        f"{_name(done)}: {done.rows} rows ({', '.join(counts)}) of {done.runs} runs, {done.graphs} graphs, "
        f"{done.families} model families -> {done.file}{state}"
    ]
    return lines + _notes(done)


def _notes(done: SettingReport) -> list[str]:
    """What to be careful with."""
    lines = []
    for split, sides in done.empty.items():
        if sides and done.rows:
            lines.append(f"  split {split}: no rows in {' and '.join(sides)}")
    if done.machines_note:
        lines.append(f"  {done.machines_note}")
    if done.by_older_rules:
        lines.append(f"  {done.by_older_rules} rows were made by older rules; their runs are gone")
    return lines


if __name__ == "__main__":
    sys.exit(main())
