"""The runs below a folder that can be used, and the reasons why others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import DripleError
from driple.pipeline.datasets.dataset_file import Row
from driple.pipeline.datasets.run_rows import Request, SetAside, inputs_sha256, work
from driple.pipeline.reports import measured_tables
from driple.pipeline.reports.page_layout import Watch
from driple.pipeline.traces.run_index import MANIFEST, find_runs

TRACES_SHOWN = 8
"""Runs with plots. A page with hundreds would be too large."""


@dataclass(frozen=True)
class Used:
    """A run that can be used, with its rows."""

    folder: Path
    rows: Sequence[Row]

    @property
    def run_id(self) -> str:
        return str(self.rows[0]["run_id"])

    @property
    def step_s(self) -> float | None:
        return next(iter(measured_tables.step_times(self.rows)), None)

    @property
    def flags(self) -> list[str]:
        return sorted(measured_tables.flag_counts(self.rows))


@dataclass(frozen=True)
class Aside:
    """A run that cannot be used."""

    folder: Path
    reason: str


def look(root: Path, watch: Watch) -> tuple[list[Used], list[Aside]]:
    """All runs at or below a folder. Of two with the same identity the later one is used, as in a dataset."""
    folders = list(find_runs(root))
    found: dict[str, Used] = {}
    aside: list[Aside] = []
    for number, (folder, fault) in enumerate(folders):
        watch("runs", number, len(folders))
        run = Aside(folder, fault) if fault is not None else _read(folder)
        if isinstance(run, Aside):
            aside.append(run)
            continue
        other = found.setdefault(run.run_id, run)
        if other is not run:
            later, earlier = sorted((run, other), key=_age, reverse=True)
            found[run.run_id] = later
            aside.append(Aside(earlier.folder, f"the same run as {later.folder}, which is used"))
    watch("runs", len(folders), len(folders))
    return list(found.values()), sorted(aside, key=lambda run: str(run.folder))


def _read(folder: Path) -> Used | Aside:
    try:
        request = Request(str(folder.absolute()), inputs_sha256(folder / MANIFEST))
    except DripleError as error:
        return Aside(folder, str(error).replace(f"{folder}/", ""))
    outcome = work(request)
    return Aside(folder, outcome.reason) if isinstance(outcome, SetAside) else Used(folder, outcome.rows)


def _age(run: Used) -> tuple[float, str]:
    return float(run.rows[0].get("started_real_s") or 0.0), str(run.folder)


def sample(used: Sequence[Used]) -> list[Used]:
    """A sample of runs, evenly from the shortest step to the longest."""
    ordered = sorted(used, key=lambda run: (run.step_s or 0.0, run.run_id))
    if len(ordered) <= TRACES_SHOWN:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(i * last / (TRACES_SHOWN - 1))] for i in range(TRACES_SHOWN)]
