"""Run directories to datasets: what is there, what changed, what came of it.

A run whose run.json is the one that its rows were made of, by the same rules, is not worked on again. Rows whose run is
no longer among the traces stay: traces are large and may be thrown away when their rows are made. Each dataset is
written when the last of its runs is done, beside and then moved into place.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driple.contracts.errors import BadInput, CorruptRun, DripleError
from driple.contracts.folder_lock import only_one
from driple.contracts.formats.dataset import PUBLISHED, SPLITS, SUFFIX, split_column
from driple.contracts.setting import Setting
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.datasets import published_datasets
from driple.pipeline.datasets.dataset_file import Dataset, Row
from driple.pipeline.datasets.engine import Engine, Pool, connected
from driple.pipeline.datasets.run_rows import (
    RULES_VERSION,
    Outcome,
    Request,
    SetAside,
    inputs_sha256,
    read_manifest,
    work,
)
from driple.pipeline.datasets.shared_facts import shared_metadata
from driple.pipeline.datasets.splits import empty_sides

MANIFEST = "run.json"
_LEFTOVERS = {"job.json", "trace", "steps"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How datasets are built."""

    output: Path
    engine: Engine = field(default_factory=Engine)
    rebuild: bool = False
    """Work on unchanged runs too."""
    prune: bool = False
    """Drop rows whose run is no longer there, in the settings that have runs."""


@dataclass(frozen=True)
class LeftOut:
    """A run, or a graph of a published file, that gave no rows."""

    run: str
    """The folder, or the file, as the user named it."""
    reason: str
    traceback: str | None = None


@dataclass
class SettingReport:
    """What happened to one dataset. Counts are of rows."""

    setting: str
    file: str
    added: int = 0
    replaced: int = 0
    kept: int = 0
    removed: int = 0
    rows: int = 0
    runs: int = 0
    graphs: int = 0
    families: int = 0
    by_older_rules: int = 0
    """Rows that rules of an earlier version made, from runs that are gone."""
    empty: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Sides of each split on which there is no row."""
    written: bool = False


@dataclass
class Report:
    """What a build did."""

    found: int = 0
    """Runs that were looked at."""
    computed: int = 0
    """Runs that were worked on, well or not."""
    settings: list[SettingReport] = field(default_factory=list)
    set_aside: list[LeftOut] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when not one run could be used."""
        return 1 if self.found and len(self.set_aside) >= self.found else 0


Watch = Callable[[int, int, int], None]
"""Told how many runs are done, of how many, and how many were set aside."""


@dataclass
class _Run:
    """A run that can be worked on."""

    folder: Path
    run_id: str
    setting: str
    inputs_sha256: str
    started_s: float


@dataclass
class _State:
    """A dataset on its way."""

    report: SettingReport
    old: Dataset
    runs: dict[str, list[Row]]
    """Rows by run, as they were."""
    fresh: dict[str, Sequence[Row]] = field(default_factory=dict)
    """Rows by run, of this build."""
    gone: set[str] = field(default_factory=set)
    """Runs whose rows go."""
    waiting: int = 0
    """Runs that are still being worked on."""


def build(traces: Sequence[Path], options: Options, watch: Watch = lambda *_: None) -> Report:
    """Builds the datasets of all runs below `traces`.

    Raises:
        BadInput: there are no runs, the output cannot be used, or another build is at work on it.
        DripleError: the engine is not there.
    """
    report = Report()
    runs = _look(traces, report)
    with only_one(options.output, "driple-build-dataset"):
        states = {name: _begin(name, options) for name in sorted({run.setting for run in runs})}
        changed = []
        for run in runs:
            state = states[run.setting]
            if options.rebuild or not _unchanged(state.runs.get(run.run_id), run.inputs_sha256):
                changed.append(run)
                state.waiting += 1
        if options.prune:
            _prune(states, {run.run_id for run in runs} | {Path(left.run).name for left in report.set_aside})
        for state in states.values():
            if not state.waiting:
                _finish(state, report)
        if changed:
            with connected(options.engine) as pool:
                _compute(changed, states, pool, report, watch)
    report.set_aside.sort(key=lambda left: left.run)
    report.settings.sort(key=lambda done: done.setting)
    return report


def build_published(paths: Sequence[Path], setting: Setting | None, options: Options) -> Report:
    """Imports published datasets. What an earlier import gave to the same setting is replaced.

    Raises:
        BadInput: a file that is no published dataset; nothing of the others is written then either.
    """
    imports = [published_datasets.load(path, setting, RULES_VERSION) for path in paths]
    names = [str(found.setting) for found in imports]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two of the files are of {name}: a setting has one published dataset")
    report = Report()
    with only_one(options.output, "driple-build-dataset"):
        for path, found in zip(paths, imports, strict=True):
            state = _begin(str(found.setting), options)
            report.found += len(found.rows) + len(found.left_out)
            report.set_aside += [LeftOut(str(path), reason) for reason in found.left_out]
            fresh = {row["run_id"]: [row] for row in found.rows}
            for key, rows in fresh.items():
                if options.rebuild or not _unchanged(state.runs.get(key), rows[0]["inputs_sha256"]):
                    state.fresh[key] = rows
            state.gone = {key for key, rows in state.runs.items() if _is_published(rows)} - fresh.keys()
            state.old.graphs.update(found.graphs)
            _finish(state, report)
    return report


def find_runs(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Every run directory at or below `root`, with the reason where it is none that can be read."""
    seen: set[tuple[int, int]] = set()

    def walk(folder: Path) -> Iterator[tuple[Path, str | None]]:
        try:
            status = folder.stat()
            entries = sorted(folder.iterdir())
        except OSError as error:
            yield folder, f"cannot be read: {error.strerror}"
            return
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back
            return
        seen.add((status.st_dev, status.st_ino))
        names = {entry.name for entry in entries}
        if MANIFEST in names:
            yield folder, None
        elif names & _LEFTOVERS:
            yield folder, f"{MANIFEST}: missing"
        else:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield from walk(entry)

    return walk(root)


def _look(traces: Sequence[Path], report: Report) -> list[_Run]:
    """The runs that can be worked on, one of each identity; the others go into the report."""
    chosen: dict[str, _Run] = {}
    for root in traces:
        if not root.is_dir():
            raise BadInput(f"{root}: {'not a folder' if root.exists() else 'no such folder'}")
        for folder, fault in find_runs(root):
            report.found += 1
            try:
                if fault is not None:
                    raise CorruptRun(fault)
                run = _glance(folder)
            except CorruptRun as error:
                report.set_aside.append(LeftOut(str(folder), str(error).replace(f"{folder}/", "")))
                continue
            except Exception as error:  # no run may stop the others, whatever its manifest holds
                reason = f"unforeseen {type(error).__name__} in {MANIFEST}"
                report.set_aside.append(LeftOut(str(folder), reason, traceback.format_exc()))
                continue
            other = chosen.setdefault(run.run_id, run)
            if other is not run:
                later, earlier = sorted((run, other), key=lambda one: (one.started_s, str(one.folder)), reverse=True)
                chosen[run.run_id] = later
                reason = f"the same run as {later.folder}, which is used: it started later, or has the later name"
                report.set_aside.append(LeftOut(str(earlier.folder), reason))
    if not report.found:
        where = ", ".join(map(str, traces))
        raise BadInput(f"{where}: no run directories (a folder with {MANIFEST}) in it; driple-run makes them")
    return sorted(chosen.values(), key=lambda run: (run.setting, run.run_id))


def _glance(folder: Path) -> _Run:
    inputs = inputs_sha256(folder / MANIFEST)
    manifest = read_manifest(folder)
    return _Run(folder, manifest.run_id, str(manifest.run.setting), inputs, manifest.started_real_s or 0.0)


def _begin(setting: str, options: Options) -> _State:
    path = options.output / f"{setting}{SUFFIX}"
    old = files.read(path, setting) if path.exists() else Dataset(setting)
    return _State(SettingReport(setting, str(path)), old, old.runs())


def _unchanged(rows: list[Row] | None, inputs: str) -> bool:
    return rows is not None and all(
        (row["inputs_sha256"], row["rules_version"]) == (inputs, RULES_VERSION) for row in rows
    )


def _compute(runs: list[_Run], states: dict[str, _State], pool: Pool, report: Report, watch: Watch) -> None:
    by_folder = {str(run.folder.resolve()): run for run in runs}
    requests = [Request(folder, run.inputs_sha256) for folder, run in by_folder.items()]
    watch(0, len(runs), len(report.set_aside))
    for request, outcome in pool.map(work, requests):
        run = by_folder[request.folder]
        state = states[run.setting]
        report.computed += 1
        _absorb(run, outcome, state, report)
        watch(report.computed, len(runs), len(report.set_aside))
        state.waiting -= 1
        if not state.waiting:
            _finish(state, report)


def _absorb(run: _Run, outcome: Outcome | None, state: _State, report: Report) -> None:
    if outcome is None:
        outcome = SetAside("the process that worked on it was killed, also when it had it alone (out of memory?)")
    if isinstance(outcome, SetAside):
        kept = "; its rows of before stay" if run.run_id in state.runs else ""
        report.set_aside.append(LeftOut(str(run.folder), outcome.reason + kept, outcome.traceback))
        return
    if outcome.rules_version != RULES_VERSION:
        theirs = outcome.rules_version
        raise DripleError(f"a worker has another driple (rules {theirs}, here {RULES_VERSION}): install the same one")
    for key, graph in outcome.graphs.items():
        state.old.graphs.setdefault(key, graph)
    state.fresh[run.run_id] = outcome.rows


def _prune(states: dict[str, _State], there: set[str]) -> None:
    for state in states.values():
        state.gone = {key for key, rows in state.runs.items() if key not in there and not _is_published(rows)}


def _is_published(rows: list[Row]) -> bool:
    return bool(rows[0]["provenance"] == PUBLISHED)


def _finish(state: _State, report: Report) -> None:
    done = state.report
    result = _merged(state)
    if result.rows and (done.added or done.replaced or done.removed):
        content = files.to_bytes(result, shared_metadata(result))
        done.written = files.put(content, Path(done.file))
    elif done.removed:
        Path(done.file).unlink(missing_ok=True)
    if result.rows or done.removed:
        report.settings.append(done)
    # A build of many settings need not keep those that are done.
    state.old, state.runs, state.fresh = Dataset(done.setting), {}, {}


def _merged(state: _State) -> Dataset:
    """The dataset as it becomes, counted."""
    done = state.report
    rows = [row for row in state.old.rows if row["run_id"] not in state.gone and row["run_id"] not in state.fresh]
    done.kept = len(rows)
    for key, fresh in state.fresh.items():
        before = len(state.runs.get(key, ()))
        done.replaced += min(before, len(fresh))
        done.added += max(0, len(fresh) - before)
        done.removed += max(0, before - len(fresh))
        rows += fresh
    done.removed += sum(len(state.runs[key]) for key in state.gone)
    done.rows = len(rows)
    done.runs = len({row["run_id"] for row in rows})
    done.graphs = len({row["graph"] for row in rows})
    done.families = len({row["family"] for row in rows if row.get("family")})
    done.by_older_rules = sum(row["rules_version"] != RULES_VERSION for row in rows)
    done.empty = {split: empty_sides(row.get(split_column(split)) for row in rows) for split in SPLITS}
    return Dataset(done.setting, rows, state.old.graphs)
