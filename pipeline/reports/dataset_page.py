"""The report on datasets: content, splits, provenance and quality."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, BadSetting
from driple.contracts.formats.dataset import (
    BACKGROUND_LOAD_FLAG,
    NETWORK_COLUMNS,
    SIDES,
    SIMULATED,
    SIMULATED_FOLDER,
    SPLITS,
    SUFFIX,
    joined_provenance,
    split_column,
)
from driple.contracts.metrics import TARGETS
from driple.contracts.setting import Setting
from driple.pipeline.datasets.dataset_file import Dataset, Row, read
from driple.pipeline.datasets.run_rows import RULES_VERSION
from driple.pipeline.reports import measured_tables
from driple.pipeline.reports.charts import bars, histogram
from driple.pipeline.reports.html import Cell, Html, facts, join, table, tag
from driple.pipeline.reports.number_text import counted, duration, listed, median, percent, plain, size, summary, when
from driple.pipeline.reports.page_layout import Page, Report, Section, Watch

_WORKLOAD = (
    *("model", "family", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width", "strategy"),
    *NETWORK_COLUMNS,
)


def dataset_report(paths: Sequence[Path], root: Path, watch: Watch) -> Report:
    """One page; files of a folder that cannot be read are listed on it. Raises BadInput if the only one cannot."""
    datasets: list[tuple[Path, Dataset]] = []
    broken: list[tuple[str, str]] = []
    for number, path in enumerate(paths):
        watch("datasets", number, len(paths))
        try:
            datasets.append((path, read(path, path.name.removesuffix(SUFFIX))))
        except BadInput as error:
            if len(paths) == 1:
                raise
            broken.append((path.name, str(error).replace(f"{path}: ", "")))
    watch("datasets", len(paths), len(paths))
    several = len(paths) > 1
    sections = [Section("Datasets", _overview(datasets))] if several else []
    if broken:
        rows = [list(one) for one in broken]
        sections.append(Section("Set aside", table("Files that cannot be used, and why", ["file", "reason"], rows)))
    for path, found in datasets:
        sections += _sections(path, found, f"{found.setting}: " if several else "")
    about = {
        "kind": "dataset",
        "path": str(root),
        "set_aside": [{"file": name, "reason": reason} for name, reason in broken],
        "datasets": {found.setting: _facts(path, found) for path, found in datasets},
    }
    title = f"Datasets in {root.resolve().name}" if several else f"Dataset {datasets[0][1].setting}"
    provenance = joined_provenance(str(row["provenance"]) for _, found in datasets for row in found.rows)
    notes = [note for _, found in datasets for note in _notes(found)]
    return Report(title, sections, about, notes=notes, provenance=provenance)


def _sections(path: Path, dataset: Dataset, prefix: str) -> list[Section]:
    rows = dataset.rows
    parts: list[tuple[str, Html]] = [("Overview", _about(path, dataset))]
    if rows:
        parts += [
            ("Model families", _families(rows)),
            ("Splits", _splits(rows)),
            ("Provenance", _provenance(rows)),
            ("Distributions", join([measured_tables.distributions(rows), _graphs(rows)])),
            ("Cycle and step", measured_tables.cycles(rows)),
            ("Repeatability", _repeatability(rows)),
            ("Patterns", measured_tables.patterns(rows)),
            ("Quality", measured_tables.quality(rows)),
            ("All workloads", _workloads(rows)),
        ]
    return [Section(f"{prefix}{title}", body) for title, body in parts]


def _overview(datasets: Iterable[tuple[Path, Dataset]]) -> Html:
    cells = [
        [
            found.setting,
            len(found.rows),
            len(found.runs()),
            len(by_workload(found.rows)),
            len(found.graphs),
            len({row.get("family") for row in found.rows} - {None}),
            listed(row.get("provenance") for row in found.rows),
            sum(bool(row.get("flags")) for row in found.rows),
            size(path.stat().st_size),
        ]
        for path, found in datasets
    ]
    head = ["setting", "rows", "runs", "workloads", "graphs", "families", "provenance", "rows with flags", "size"]
    return table("One file for each setting", head, cells, sortable=True)


def _about(path: Path, dataset: Dataset) -> Html:
    rows = dataset.rows
    times = measured_tables.step_times(rows)
    return facts(
        [
            ("setting", dataset.setting),
            ("file", f"{path.name}, {size(path.stat().st_size)}"),
            ("rows", measured_tables.role_counts(rows) or "none"),
            ("runs", len(dataset.runs())),
            ("workloads", len(by_workload(rows))),
            ("graphs", len(dataset.graphs)),
            ("models", len({row.get("model") for row in rows} - {None}) or None),
            ("provenance", listed(row.get("provenance") for row in rows)),
            ("step time", f"{duration(min(times))} to {duration(max(times))}" if times else None),
            ("versions", measured_tables.versions(rows)),
            ("SHA-256", hashlib.sha256(path.read_bytes()).hexdigest()),
        ]
    )


def _families(rows: Sequence[Row]) -> Html:
    head = ["family", "models", "workloads", "runs", "rows", "side of the architecture split", "median step time"]
    cells = []
    for family in sorted({row.get("family") for row in rows} - {None}, key=str):
        mine = [row for row in rows if row.get("family") == family]
        step = median(measured_tables.step_times(mine))
        cells.append(
            [
                family,
                listed(row.get("model") for row in mine),
                *(len(by_workload(mine)), len({row["run_id"] for row in mine}), len(mine)),
                listed(row.get("split_architecture") for row in mine),
                Cell(duration(step), step),
            ]
        )
    if not cells:
        return tag("p", "The families are unknown: published rows do not name their models.")
    return table("Counts by model family", head, cells, sortable=True)


def _splits(rows: Sequence[Row]) -> Html:
    cells = []
    for split in SPLITS:
        for side in (*SIDES, None):
            mine = [row for row in rows if row.get(split_column(split)) == side]
            if mine or side is not None:
                share = percent(len(mine) / len(rows))
                families = len({row.get("family") for row in mine} - {None})
                cells.append([f"{split}, {side or 'no side'}", len(by_workload(mine)), len(mine), share, families])
    note = "Split by architecture, no model family is on two sides; split at random, no workload is."
    head = ["split, side", "workloads", "rows", "share of rows", "families"]
    return join([tag("p", note, class_="soft"), table("Rows on each side", head, cells)])


def _provenance(rows: Sequence[Row]) -> Html:
    keys: tuple[str, ...] = ("provenance", "host_kind", "device", "host_cores", "host_kernel", "traffic_source")
    keys += ("git_commit", "rules_version")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    cells = []
    for group, mine in sorted(groups.items(), key=lambda item: -len(item[1])):
        began = [row["started_real_s"] for row in mine if row.get("started_real_s") is not None]
        times = [when(min(began)), when(max(began))] if began else [None, None]
        cells.append([*group[:-1], Cell(group[-1], str(group[-1])), len({row["run_id"] for row in mine}), *times])
    head = ["rows are", "hosts", "device", "cores", "kernel", "traffic from", "commit", "rules", "runs"]
    head += ["first began", "last began"]
    return table("Where rows came from", head, cells)


def _graphs(rows: Sequence[Row]) -> Html:
    seen = {row["graph"]: row for row in rows if row.get("graph") is not None}
    nodes = measured_tables.values(list(seen.values()), "nodes")
    received = [
        value for value in measured_tables.values(list(seen.values()), "bytes_received") if math.isfinite(value)
    ]
    pictures = [histogram("ops (or groups) of a graph", nodes, plain)]
    if received:
        pictures.append(histogram("bytes that a worker receives in a step", received, size))
    return join([tag("h3", f"Graphs, {len(seen)}"), tag("div", *pictures, class_="grid")])


def _repeatability(rows: Sequence[Row]) -> Html:
    spreads = repeatability(rows)
    counts = {len(runs) for runs in _runs_by_workload(rows).values()}
    known = {column: found for column, found in spreads.items() if found}
    if not known:
        return tag("p", "No workload was run more than once, so the variation between repetitions is unknown.")
    most = max(len(found) for found in known.values())
    text = (
        f"{counted(most, 'workload')} ran more than once (up to {max(counts)} times). The half spread is half the range"
        " of the runs' means over workers, divided by their mean. No prediction can be consistently closer."
    )
    series: dict[str, list[float | None]] = {
        "median of workloads": [median(found) for found in known.values()],
        "worst workload": [max(found) for found in known.values()],
    }
    return join([tag("p", text), bars("Half spread between repetitions", list(known), series, percent)])


def repeatability(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The relative half spread of each target between repetitions, one value for each repeated workload."""
    found: dict[str, list[float]] = {target.column: [] for target in TARGETS}
    for runs in _runs_by_workload([row for row in rows if row.get("role") == "worker"]).values():
        for column, spreads in found.items():
            means = [
                sum(known) / len(known) for mine in runs.values() if (known := measured_tables.values(mine, column))
            ]
            middle = sum(means) / len(means) if means else 0.0
            if len(means) > 1 and middle > 0:
                spreads.append((max(means) - min(means)) / middle / 2)
    return found


def _workloads(rows: Sequence[Row]) -> Html:
    head = ["model", "family", "batch", "optimiser", "update", "image", "sequence", "width", "runs", "rows"]
    head += ["step time", "ops", "others' CPU, %", "architecture", "random", "flags"]
    cells = []
    for workload, mine in by_workload(rows).items():
        step = median(measured_tables.step_times(mine))
        beyond = max(measured_tables.values(mine, "foreign_cpu_pct"), default=None)
        cells.append(
            [
                workload[0] or mine[0]["run_id"],
                *workload[1:8],
                *(len({row["run_id"] for row in mine}), len(mine)),
                Cell(duration(step), step),
                mine[0].get("nodes"),
                Cell(plain(beyond), beyond),
                *(mine[0].get(split_column(split)) for split in SPLITS),
                ", ".join(sorted(measured_tables.flag_counts(mine))),
            ]
        )
    note = tag("p", "Click on a title to sort.", class_="soft")
    return join([note, table("Every workload", head, cells, sortable=True)])


def by_workload(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by workload. Each published row counts as a workload of its own."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in _WORKLOAD)
        found.setdefault(key if row.get("model") is not None else (*key, row["run_id"]), []).append(row)
    return found


def _runs_by_workload(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, list[Row]]]:
    found: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for key, mine in by_workload(rows).items():
        runs = found.setdefault(key, {})
        for row in mine:
            runs.setdefault(row["run_id"], []).append(row)
    return found


def _notes(dataset: Dataset) -> list[str]:
    rows = dataset.rows
    kinds = {row.get("provenance") for row in rows}
    found = []
    if SIMULATED in kinds:
        found.append(f"{dataset.setting}: simulated rows: they were computed, not measured.")
    if len(kinds) > 1:
        found.append(f"{dataset.setting}: rows of more than one provenance; driple-train refuses a mixture.")
    busy = {row["run_id"] for row in rows if BACKGROUND_LOAD_FLAG in (row.get("flags") or ())}
    if busy:
        found.append(f"{dataset.setting}: {counted(len(busy), 'run')} measured while other programs used the machine.")
    older = sum((row.get("rules_version") or 0) < RULES_VERSION for row in rows)
    if older:
        found.append(f"{dataset.setting}: {counted(older, 'row')} made by older rules.")
    return found


def _facts(path: Path, dataset: Dataset) -> dict[str, Any]:
    rows = dataset.rows
    return {
        "file": str(path),
        "workloads": len(by_workload(rows)),
        "graphs": len(dataset.graphs),
        **measured_tables.shared_facts(rows),
        "sides": {
            split: {side: sum(row.get(split_column(split)) == side for row in rows) for side in SIDES}
            for split in SPLITS
        },
        "repeatability": {column: summary(found) for column, found in repeatability(rows).items()},
    }


def _find(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path] if path.suffix == SUFFIX else []
    folders = (path, path / SIMULATED_FOLDER)  # the simulated ones only where nothing was measured: never mixed
    found = (sorted(one.glob(f"*{SUFFIX}")) for one in folders)
    return next(filter(None, ([file for file in files if _is_setting(file.stem)] for files in found)), [])


def _is_setting(name: str) -> bool:
    try:
        Setting.parse(name)
    except BadSetting:
        return False
    return True


PAGE = Page(f"a dataset (<setting>{SUFFIX}) or a folder of datasets", _find, dataset_report)
