"""The report on a sweep: all runs below a folder, those that were set aside, and traces of some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.dataset import BACKGROUND_LOAD_FLAG, OTHER_NETWORK_FLAGS, joined_provenance
from driple.contracts.metrics import NET_RX, NET_TX
from driple.pipeline.datasets.dataset_file import Row
from driple.pipeline.datasets.run_rows import Request, SetAside, inputs_sha256, network_reason, work
from driple.pipeline.reports import measured_tables
from driple.pipeline.reports.html import Cell, Html, facts, join, table, tag
from driple.pipeline.reports.number_text import counted, duration, listed, plain, summary, when
from driple.pipeline.reports.page_layout import Page, Report, Section, Watch, anchor
from driple.pipeline.traces.background_load import LIMIT_PCT
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
    found: dict[tuple[str, str], Used] = {}
    aside: list[Aside] = []
    for number, (folder, fault) in enumerate(folders):
        watch("runs", number, len(folders))
        run = Aside(folder, fault) if fault is not None else _read(folder)
        if isinstance(run, Aside):
            aside.append(run)
            continue
        key = str(run.rows[0]["provenance"]), run.run_id
        other = found.setdefault(key, run)
        if other is not run:
            later, earlier = sorted((run, other), key=_age, reverse=True)
            found[key] = later
            aside.append(Aside(earlier.folder, f"the same run as {later.folder}, which is used"))
    watch("runs", len(folders), len(folders))
    return list(found.values()), sorted(aside, key=lambda run: str(run.folder))


def _read(folder: Path) -> Used | Aside:
    try:
        request = Request(str(folder.absolute()), inputs_sha256(folder / MANIFEST))
    except DripleError as error:
        return Aside(folder, str(error).replace(f"{folder}/", ""))
    outcome = work(request)
    if isinstance(outcome, SetAside):
        return Aside(folder, outcome.reason)
    used = Used(folder, outcome.rows)
    other = [flag for flag in OTHER_NETWORK_FLAGS if flag in used.flags]
    return Aside(folder, network_reason(", ".join(other))) if other else used


def _age(run: Used) -> tuple[float, str]:
    return float(run.rows[0].get("started_real_s") or 0.0), str(run.folder)


def sample(used: Sequence[Used]) -> list[Used]:
    """A sample of runs, evenly from the shortest step to the longest."""
    ordered = sorted(used, key=lambda run: (run.step_s or 0.0, run.run_id))
    if len(ordered) <= TRACES_SHOWN:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(i * last / (TRACES_SHOWN - 1))] for i in range(TRACES_SHOWN)]


def sweep_report(root: Path, watch: Watch) -> Report:
    """Reads all runs. Broken ones are listed as set aside."""
    used, aside = look(root, watch)
    rows = [row for run in used for row in run.rows]
    kinds = Counter(str(run.rows[0]["provenance"]) for run in used)
    if len(kinds) > 1:
        counts = " and ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        raise BadInput(f"{root}: {counts} runs: a report never mixes them; name a folder with runs of one kind")
    pictures, failed = _pictures(sample(used), watch)
    sections = [Section("Overview", _overview(used, aside)), Section("Set aside", _set_aside(root, aside + failed))]
    if used:
        sections += [
            Section("Traces", pictures),
            Section("Distributions", measured_tables.distributions(rows)),
            Section("Cycle and step", measured_tables.cycles(rows)),
            Section("Patterns", measured_tables.patterns(rows)),
            Section("Quality", measured_tables.quality(rows)),
            Section("All runs", _all_runs(used)),
        ]
    found: dict[str, Any] = {
        "kind": "sweep",
        "path": str(root),
        "found": len(used) + len(aside),
        "used": len(used),
        "set_aside": [{"run": str(run.folder), "reason": run.reason} for run in aside],
        "settings": sorted({str(row["setting"]) for row in rows}),
        **measured_tables.shared_facts(rows),
    }
    title, provenance = f"Sweep {root.resolve().name}", joined_provenance(kinds)
    return Report(title, sections, found, notes=_notes(used, aside), provenance=provenance)


def _pictures(runs: Sequence[Used], watch: Watch) -> tuple[Html, list[Aside]]:
    from driple.pipeline.reports.trace_chart import STEPS_SHOWN, task_picture
    from driple.pipeline.traces.load_run import load_run

    parts: list[object] = [
        tag(
            "p",
            "Bursts are shaded, in grey if their start or end was not observed. The dashed line is the threshold"
            " between burst and idle; ticks at the top mark the starts of steps. At most"
            f" {STEPS_SHOWN} steps of at most {TRACES_SHOWN} runs are shown, from the shortest step to the longest.",
        )
    ]
    failed = []
    for number, one in enumerate(runs):
        watch("traces", number, len(runs))
        try:
            run = load_run(one.folder)
            drawn = {task: task_picture(run, task) for task in run.tasks}
        except (DripleError, OSError) as error:  # it changed since it was first read
            failed.append(Aside(one.folder, f"no traces shown: {error}"))
            continue
        first = next((task for task in drawn if task.startswith("worker")), next(iter(drawn)))
        others = [picture for task, picture in drawn.items() if task != first]
        parts += [
            tag("h3", one.run_id, id=_run_anchor(one)),
            tag("p", "Flags: ", ", ".join(one.flags), class_="soft") if one.flags else None,
            drawn[first],
            tag("details", tag("summary", counted(len(others), "other task")), *others) if others else None,
        ]
    watch("traces", len(runs), len(runs))
    return join(parts), failed


def _overview(used: Sequence[Used], aside: Sequence[Aside]) -> Html:
    rows = [row for run in used for row in run.rows]
    first = [run.rows[0] for run in used]
    times = summary(measured_tables.step_times(rows))
    began = [row["started_real_s"] for row in first if row.get("started_real_s") is not None]
    workloads = {_workload(row) for row in first}
    return facts(
        [
            ("runs", f"{len(used)} used, {len(aside)} set aside"),
            ("settings", listed(row["setting"] for row in first)),
            ("workloads", f"{len(workloads)} of {counted(len({row['model'] for row in first}), 'model')}"),
            ("model families", listed(row.get("family") for row in first)),
            ("tasks", measured_tables.role_counts(rows) or None),
            ("step time", _range(times)),
            ("provenance", listed(row.get("provenance") for row in first)),
            ("began", None if not began else f"{when(min(began))} to {when(max(began))}"),
            ("hosts", listed(row.get("host") for row in rows)),
            ("machines", listed(_machine(row) for row in rows)),
            ("versions", measured_tables.versions(first)),
            ("commit", listed(row.get("git_commit") for row in first)),
        ]
    )


def _notes(used: Sequence[Used], aside: Sequence[Aside]) -> list[str]:
    busy = sum(BACKGROUND_LOAD_FLAG in run.flags for run in used)
    found = []
    if not used:
        found.append("No run can be used; the reasons are below.")
    elif aside:
        found.append(f"{counted(len(aside), 'run')} of {len(used) + len(aside)} set aside; the reasons are below.")
    if busy:
        found.append(
            f"{counted(busy, 'run')} measured while other programs used the machine (over {plain(LIMIT_PCT)} % of a"
            " core); run them again."
        )
    return found


def _set_aside(root: Path, aside: Sequence[Aside]) -> Html:
    if not aside:
        return tag("p", "No run was set aside.")
    rows = [[_short(root, run.folder), run.reason] for run in aside]
    return table("Runs that are not used, and why", ["run", "reason"], rows, sortable=True)


def _all_runs(used: Sequence[Used]) -> Html:
    shown = {run.run_id for run in sample(used)}
    head = ["run", "model", "family", "batch", "optimiser", "update", "repetition", "measured steps", "step time"]
    head += ["RX burst", "RX idle", "TX burst", "TX idle", "clock bound", "others' CPU, %", "flags"]
    rows = []
    for run in sorted(used, key=lambda run: run.run_id):
        row = next((row for row in run.rows if row.get("role") == "worker"), run.rows[0])
        name = tag("a", run.run_id, href=f"#{_run_anchor(run)}") if run.run_id in shown else run.run_id
        beyond = max(measured_tables.values(run.rows, "foreign_cpu_pct"), default=None)
        bound = max(measured_tables.values(run.rows, "clock_bound_s"), default=None)
        spans = [f"{resource.key}_{part}_s" for resource in (NET_RX, NET_TX) for part in ("burst", "idle")]
        rows.append(
            [
                Cell(name, run.run_id),
                *(row.get(key) for key in ("model", "family", "batch_size", "optimiser", "update", "repetition")),
                row.get("steps"),
                Cell(duration(run.step_s), run.step_s),
                *(Cell(duration(row.get(key)), row.get(key)) for key in spans),
                Cell(duration(bound), bound),
                Cell(plain(beyond), beyond),
                ", ".join(run.flags),
            ]
        )
    note = "Durations of traffic are those of the first worker. Click a column title to sort."
    return join([tag("p", note, class_="soft"), table("Every run that is used", head, rows, sortable=True)])


def _workload(row: Row) -> tuple[Any, ...]:
    keys = ("setting", "model", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width")
    return tuple(row.get(key) for key in keys)


def _machine(row: Row) -> str | None:
    if row.get("host_cores") is None:
        return None
    memory = row.get("host_memory_bytes") or 0
    return f"{row.get('host_kind')}, {row['host_cores']} cores, {memory / 2**30:.0f} GiB, {row.get('host_kernel')}"


def _range(times: Any) -> str | None:
    if not times["count"]:
        return None
    return f"{duration(times['least'])} to {duration(times['greatest'])}, median {duration(times['median'])}"


def _run_anchor(run: Used) -> str:
    return f"run-{anchor(run.run_id)}"


def _short(root: Path, folder: Path) -> str:
    return str(folder.relative_to(root)) if folder != root and folder.is_relative_to(root) else str(folder)


def _find(path: Path) -> Sequence[Path]:
    return [path] if path.is_dir() and next(find_runs(path), None) is not None else []


PAGE = Page("a sweep (a folder with run directories)", _find, lambda _, root, watch: sweep_report(root, watch))
