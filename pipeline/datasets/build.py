"""Builds datasets from run directories.

Simulated runs give datasets of their own, in the folder `simulated/` of the datasets: the same run can be measured and
simulated, and rows of both are never in one file.

A run is skipped if its rows were made from the same run.json by the same rules. Rows whose run is no longer among the
traces stay: traces are large and may be deleted when their rows exist. Each dataset is written atomically when the
last of its runs is done.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput, CorruptRun, DripleError
from driple.contracts.formats.dataset import (
    MEASURED,
    OTHER_NETWORK_FLAGS,
    PUBLISHED,
    SIMULATED,
    check_one_share,
    dataset_path,
)
from driple.contracts.manifest import as_specified
from driple.contracts.run_spec import RunSpec
from driple.contracts.setting import Setting
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.datasets import published_datasets
from driple.pipeline.datasets.build_report import BuildResult, LeftOut, SettingReport
from driple.pipeline.datasets.dataset_file import Dataset, Row
from driple.pipeline.datasets.engine import LOCAL, Engine, Pool, connected, parse
from driple.pipeline.datasets.output_folder import locked
from driple.pipeline.datasets.run_rows import (
    RULES_VERSION,
    Outcome,
    Request,
    SetAside,
    inputs_sha256,
    network_reason,
    work,
)
from driple.pipeline.datasets.step_collection import collect_steps
from driple.pipeline.traces.run_index import MANIFEST, find_runs, read_sealed

UP_TO_DATE = "and its rows are up to date"

Progress = Callable[[int, int, int], None]
"""Called with the numbers of runs that are done, of all runs, and of runs that were set aside."""


@dataclass
class _Run:
    """A run that can be processed."""

    folder: Path
    run_id: str
    setting: str
    inputs_sha256: str
    started_s: float
    other_network: str | None
    """Why its tasks did not have the network of the setting, or the share that was asked for; None if they had."""
    simulated: bool
    spec: RunSpec

    @property
    def dataset(self) -> tuple[str, bool]:
        """Which dataset its rows go to: setting, and whether that of simulated runs."""
        return self.setting, self.simulated


@dataclass
class _State:
    """A dataset that is being built."""

    report: SettingReport
    old: Dataset
    runs: dict[str, list[Row]]
    """Rows by run, before this build."""
    fresh: dict[str, Sequence[Row]] = field(default_factory=dict)
    """Rows by run, from this build."""
    gone: set[str] = field(default_factory=set)
    """Runs whose rows are removed."""
    waiting: int = 0
    """Runs that are not done yet."""


def build_dataset(
    traces: str | Path | Sequence[str | Path],
    *,
    output: str | Path = "datasets",
    engine: str | Engine = LOCAL,
    jobs: int | None = None,
    rebuild: bool = False,
    prune: bool = False,
    include_loopback: bool = False,
    progress: Progress = lambda *_: None,
) -> BuildResult:
    """Builds or updates the datasets of all runs below `traces`.

    Args:
        traces: one or more folders with run directories at any depth.
        output: the folder of the datasets: `<setting>.parquet` each, of simulated runs `simulated/<setting>.parquet`.
        engine: `local`, `dask://host:port`, `ray://host:port` or `ray://auto`.
        jobs: processes of the local engine; one per processor if None.
        rebuild: process unchanged runs too.
        prune: drop rows whose run is no longer among the traces, in the settings that have runs.
        include_loopback: use runs whose tasks did not communicate over the network of the setting. Their rows have
            the flag `loopback_network` or `link_mismatch`. By default these runs are set aside.
        progress: called after each run.

    Raises:
        BadInput: there are no runs, the output cannot be used, or another build uses it.
        DripleError: the engine is not available.
    """
    output = Path(output)
    engine = parse(engine, jobs) if isinstance(engine, str) else engine
    result = BuildResult()
    roots = [traces] if isinstance(traces, (str, Path)) else traces
    found = _look([Path(root) for root in roots], result)
    there = {(copies[0].simulated, copies[0].run_id) for copies in found}
    there |= {(kind, Path(left.run).name) for left in result.set_aside for kind in (False, True)}
    with locked(output):
        states = {key: _begin(*key, output) for key in sorted({copies[0].dataset for copies in found})}
        for (_, simulated), state in states.items() if prune else ():
            state.gone = {
                key for key, rows in state.runs.items() if (simulated, key) not in there and not _is_published(rows)
            }
        for of_dataset, state in states.items():
            shares = [run.spec.cores_per_host for copies in found for run in copies if run.dataset == of_dataset]
            try:
                check_one_share([*shares, *(row.get("cores_per_host") for row in state.old.rows)])
            except BadInput as error:
                raise BadInput(f"{state.report.file}: {error}") from None
        changed = []
        for copies in found:
            state, key = states[copies[0].dataset], copies[0].run_id
            regular = [run for run in copies if run.other_network is None]
            others = [run for run in copies if run.other_network is not None]
            wanted = [*regular, *(others if include_loopback else ())]  # another network never replaces the right one
            result.set_aside += [
                LeftOut(str(run.folder), network_reason(run.other_network)) for run in copies if run not in wanted
            ]
            if not wanted:
                state.gone |= {key} & state.runs.keys()
            elif not rebuild and _unchanged(state.runs.get(key), wanted[0]):
                _leave_copies(wanted, UP_TO_DATE, result)
            else:
                changed.append(wanted)
                state.waiting += 1
        if changed:
            require("igraph")
        for state in states.values():
            if not state.waiting:
                _finish(state, result)
        if changed:
            with connected(engine) as pool:
                _compute(changed, states, pool, result, progress, rebuild)
        known = [(copies[0].folder, copies[0].spec) for copies in found if not copies[0].simulated]
        result.steps = collect_steps(known, output)
    result.set_aside.sort(key=lambda left: left.run)
    result.settings.sort(key=lambda done: (done.setting, done.provenance))
    return result


def import_published(
    files: Sequence[str | Path],
    *,
    setting: str | Setting | None = None,
    output: str | Path = "datasets",
    rebuild: bool = False,
) -> BuildResult:
    """Imports datasets that the authors of Driple published. Replaces earlier imports of the same settings.

    Args:
        files: the published files.
        setting: the setting of the file if its name does not contain it.
        output: the folder of the datasets.
        rebuild: import unchanged rows too.

    Raises:
        BadInput: a file is not a published dataset; then nothing is written.
    """
    output = Path(output)
    setting = Setting.parse(setting) if isinstance(setting, str) else setting
    imports = [published_datasets.load(Path(path), setting, RULES_VERSION) for path in files]
    names = [str(found.setting) for found in imports]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"two of the files are of {name}: a setting has one published dataset")
    result = BuildResult()
    with locked(output):
        for path, found in zip(files, imports, strict=True):
            state = _begin(str(found.setting), False, output)
            result.found += len(found.rows) + len(found.left_out)
            result.set_aside += [LeftOut(str(path), reason) for reason in found.left_out]
            fresh = {row["run_id"]: [row] for row in found.rows}
            for key, rows in fresh.items():
                if rebuild or not _made_from(state.runs.get(key), rows[0]["inputs_sha256"]):
                    state.fresh[key] = rows
            state.gone = {key for key, rows in state.runs.items() if _is_published(rows)} - fresh.keys()
            state.old.graphs.update(found.graphs)
            _finish(state, result)
    return result


def _look(traces: Sequence[Path], result: BuildResult) -> list[list[_Run]]:
    """The copies of each run that can be processed, the one to prefer first. The others are set aside."""
    found: dict[tuple[bool, str], list[_Run]] = {}
    for root in traces:
        for folder, fault in find_runs(root):
            result.found += 1
            try:
                if fault is not None:
                    raise CorruptRun(fault)
                run = _glance(folder)
            except CorruptRun as error:
                result.set_aside.append(
                    LeftOut(str(folder), str(error).replace(f"{folder}/", "").removeprefix(f"{folder}: "))
                )
                continue
            except Exception as error:  # one run must not stop the others
                reason = f"unexpected {type(error).__name__} in {MANIFEST}"
                result.set_aside.append(LeftOut(str(folder), reason, traceback.format_exc()))
                continue
            found.setdefault((run.simulated, run.run_id), []).append(run)
    if not result.found:
        where = ", ".join(map(str, traces))
        raise BadInput(f"{where}: no run directories (folders with {MANIFEST}); driple-run creates them")
    for copies in found.values():
        copies.sort(key=lambda run: (run.started_s, str(run.folder)), reverse=True)
    return sorted(found.values(), key=lambda copies: (*copies[0].dataset, copies[0].run_id))


def _glance(folder: Path) -> _Run:
    inputs = inputs_sha256(folder / MANIFEST)
    manifest = read_sealed(folder)
    started = manifest.started_real_s or 0.0
    why = manifest.network_not_as_asked or manifest.share_not_as_asked or "over loopback"
    other_network = None if as_specified(manifest) else why
    return _Run(
        folder,
        manifest.run_id,
        str(manifest.run.setting),
        inputs,
        started,
        other_network,
        manifest.is_simulated,
        manifest.run,
    )


def _begin(setting: str, simulated: bool, output: Path) -> _State:
    path = dataset_path(output, setting, simulated)
    old = files.read(path, setting) if path.exists() else Dataset(setting)
    if any((row["provenance"] == SIMULATED) != simulated for row in old.rows):
        own, other = (SIMULATED, MEASURED) if simulated else (MEASURED, SIMULATED)
        raise BadInput(
            f"{path}: has {other} rows, and {own} rows never go into the same file; move it to"
            f" {dataset_path(output, setting, not simulated)}, or give another --output"
        )
    return _State(SettingReport(setting, str(path)), old, old.runs())


def _unchanged(rows: list[Row] | None, run: _Run) -> bool:
    return _made_from(rows, run.inputs_sha256, run.other_network is not None)


def _made_from(rows: list[Row] | None, inputs: str, other_network: bool = False) -> bool:
    return rows is not None and all(
        (row["inputs_sha256"], row["rules_version"], not {*OTHER_NETWORK_FLAGS}.isdisjoint(row["flags"] or ()))
        == (inputs, RULES_VERSION, other_network)
        for row in rows
    )


def _compute(
    runs: list[list[_Run]],
    states: dict[tuple[str, bool], _State],
    pool: Pool,
    result: BuildResult,
    progress: Progress,
    rebuild: bool,
) -> None:
    """Processes each run: its first copy, and the next one if that cannot be used."""
    total = len(runs)
    progress(0, total, len(result.set_aside))
    while runs:
        by_folder = {str(copies[0].folder.resolve()): copies for copies in runs}
        requests = [Request(folder, copies[0].inputs_sha256) for folder, copies in by_folder.items()]
        runs = []
        for request, outcome in pool.map(work, requests):
            copies = by_folder[request.folder]
            state = states[copies[0].dataset]
            result.computed += 1
            others = copies[1:]
            if _absorb(copies, outcome, state, result):
                _leave_copies(copies, "which is used: the right network, a later start or a later name", result)
            elif others and not rebuild and _unchanged(state.runs.get(others[0].run_id), others[0]):
                _leave_copies(others, UP_TO_DATE, result)
            elif others:
                runs.append(others)
                total += 1
                continue
            progress(result.computed, total, len(result.set_aside))
            state.waiting -= 1
            if not state.waiting:
                _finish(state, result)


def _leave_copies(copies: list[_Run], why: str, result: BuildResult) -> None:
    """Sets aside all but the first."""
    reason = f"the same run as {copies[0].folder}, {why}"
    result.set_aside += [LeftOut(str(run.folder), reason) for run in copies[1:]]


def _absorb(copies: list[_Run], outcome: Outcome | None, state: _State, result: BuildResult) -> bool:
    """Takes the rows of the first copy, or sets it aside. Returns whether it can be used."""
    run = copies[0]
    if outcome is None:
        outcome = SetAside(
            "the process that worked on it was killed, also when it processed this run alone (out of memory?)"
        )
    if isinstance(outcome, SetAside):
        kept = "; its previous rows stay" if run.run_id in state.runs and not copies[1:] else ""
        result.set_aside.append(LeftOut(str(run.folder), outcome.reason + kept, outcome.traceback))
        return False
    if outcome.rules_version != RULES_VERSION:
        theirs = outcome.rules_version
        raise DripleError(
            f"a worker has another driple (rules {theirs}, here {RULES_VERSION}): install the same version"
        )
    for key, graph in outcome.graphs.items():
        state.old.graphs.setdefault(key, graph)
    state.fresh[run.run_id] = outcome.rows
    return True


def _is_published(rows: list[Row]) -> bool:
    return bool(rows[0]["provenance"] == PUBLISHED)


def _finish(state: _State, result: BuildResult) -> None:
    done = state.report
    dataset = _merged(state)
    if dataset.rows and (done.added or done.replaced or done.removed):
        content = files.to_bytes(dataset, files.shared_metadata(dataset))
        done.written = files.put(content, Path(done.file))
    elif done.removed:
        Path(done.file).unlink(missing_ok=True)
    if dataset.rows or done.removed:
        result.settings.append(done)
    # Release the memory of datasets that are done.
    state.old, state.runs, state.fresh = Dataset(done.setting), {}, {}


def _merged(state: _State) -> Dataset:
    """The new dataset. Counts the changes."""
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
    done.describe(rows)
    return Dataset(done.setting, rows, state.old.graphs)
