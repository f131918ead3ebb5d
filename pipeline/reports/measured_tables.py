"""Parts of the reports on sweeps and datasets: distributions, patterns, flags and quality of rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from driple.contracts.formats.dataset import BACKGROUND_LOAD_FLAG
from driple.contracts.metrics import NET_RX, NET_TX, RESOURCES, TARGETS, Resource, Target
from driple.contracts.setting import CPU
from driple.pipeline.bursts.burst_metrics import BURST, BURST_IDLE_BURST, IDLE, UNKNOWN
from driple.pipeline.datasets.dataset_file import Row
from driple.pipeline.reports.charts import Point, histogram, scatter
from driple.pipeline.reports.html import EMPTY, Html, join, table, tag
from driple.pipeline.reports.number_text import counted, duration, listed, percent, plain, summary, with_unit
from driple.pipeline.traces.background_load import LIMIT_PCT

PATTERNS: Mapping[str, str] = {
    BURST_IDLE_BURST: "burst, idle, burst",
    BURST: "busy throughout",
    IDLE: "idle throughout",
    UNKNOWN: "no data",
}
_ROLES = {"worker": "workers", "ps": "parameter servers", None: "published rows"}


def roles(rows: Sequence[Row]) -> list[str | None]:
    """The roles of the rows, workers first."""
    return [role for role in _ROLES if any(row.get("role") == role for row in rows)]


def role_name(role: str | None) -> str:
    """The name of a role."""
    return _ROLES.get(role, str(role))


def role_counts(rows: Sequence[Row]) -> str:
    """`4 workers, 2 parameter servers`."""
    return ", ".join(f"{sum(row.get('role') == role for row in rows)} {role_name(role)}" for role in roles(rows))


def values(rows: Sequence[Row], column: str) -> list[float]:
    """The numbers of a column."""
    return [float(row[column]) for row in rows if row.get(column) is not None and math.isfinite(row[column])]


def versions(rows: Sequence[Row]) -> str | None:
    """The versions of all software that took part."""
    found = set()
    for text in {str(row["versions"]) for row in rows if row.get("versions") is not None}:
        try:
            found |= {f"{name} {version}" for name, version in json.loads(text).items()}
        except (ValueError, AttributeError, TypeError):
            found.add(str(text))
    return listed(found)


def step_times(rows: Sequence[Row]) -> list[float]:
    """A value for each run: the mean over its workers."""
    by_run: dict[str, list[float]] = {}
    for row in rows:
        if row.get("role") == "worker":
            by_run.setdefault(row["run_id"], []).extend(values([row], "step_s"))
    return [sum(found) / len(found) for found in by_run.values() if found]


def distributions(rows: Sequence[Row]) -> Html:
    """Histograms of step times and of the targets, by role."""
    times = step_times(rows)
    parts: list[object] = []
    if times:
        parts.append(tag("div", histogram("step time, a value for each run", times, duration), class_="grid"))
    for role in roles(rows):
        mine = [row for row in rows if row.get("role") == role]
        cpu = all(row.get("device") == CPU for row in mine)
        known = [target for target in TARGETS if values(mine, target.column)]
        pictures = [
            histogram(target_title(target, cpu), values(mine, target.column), with_unit(target.unit))
            for target in known
        ]
        silent = [target.column for target in TARGETS if target not in known]
        parts += [
            tag("h3", f"Metrics of {role_name(role)}, {counted(len(mine), 'row')}"),
            tag("div", *pictures, class_="grid"),
            tag("p", "Without a value in every row: ", ", ".join(silent), ".", class_="soft") if silent else None,
        ]
    return join(parts)


def cycles(rows: Sequence[Row]) -> Html:
    """Burst plus idle against the step time: a check of both if a step has one burst."""
    workers = [row for row in rows if row.get("role") == "worker"]
    pictures = []
    for resource in (NET_RX, NET_TX):
        burst, idle = (f"{resource.key}_{part}_s" for part in ("burst", "idle"))
        points = [
            Point(row["step_s"], row[burst] + row[idle], f"{row['run_id']} {row.get('task')}")
            for row in workers
            if row.get(f"{resource.key}_pattern") == BURST_IDLE_BURST
            and all(row.get(name) is not None for name in ("step_s", burst, idle))
        ]
        if points:
            pictures.append(scatter(f"{resource.title} of workers", points, duration, "step time", "burst + idle"))
    if not pictures:
        return tag("p", "No worker has both a step time and a burst pattern.")
    text = (
        "A worker that receives once per step has one burst and one idle span per step, so their sum should be the step"
        " time, which was measured independently. Points below the line have several bursts per step."
    )
    return join([tag("p", text), tag("div", *pictures, class_="grid")])


def patterns(rows: Sequence[Row]) -> Html:
    """The number of rows of each role and pattern."""
    cells = []
    for role in roles(rows):
        mine = [row for row in rows if row.get("role") == role]
        cpu = all(row.get("device") == CPU for row in mine)
        for resource in RESOURCES:
            count = Counter(row.get(f"{resource.key}_pattern") for row in mine)
            named = [count.get(name, 0) for name in PATTERNS]
            cells.append([f"{role_name(role)}: {resource_title(resource, cpu)}", *named, len(mine) - sum(named)])
    head = ["resource", *(f"{name} ({meaning})" for name, meaning in PATTERNS.items()), "not measured"]
    return table("Rows by the name of their pattern", head, cells)


def flag_counts(rows: Sequence[Row]) -> Counter[str]:
    """The number of rows with each flag, without the numbers of flags (`gaps:3` counts as `gaps`)."""
    return Counter(name for row in rows for name in sorted({flag_name(flag) for flag in row.get("flags") or ()}))


def flag_name(flag: str) -> str:
    """A flag without its number."""
    return ":".join(part for part in flag.split(":") if not part.replace(".", "", 1).isdigit())


def quality(rows: Sequence[Row]) -> Html:
    """Flags, background load, errors of clocks and missed samples."""
    count = flag_counts(rows)
    cells = [[name, number, percent(number / len(rows))] for name, number in count.most_common()]
    beyond = values(rows, "foreign_cpu_pct")
    pictures = [
        histogram("processor time of others, % of one core", beyond, plain, mark=(LIMIT_PCT, "limit"))
        if beyond
        else None,
        _histogram("clock of a host known to", rows, "clock_bound_s", "s"),
        _histogram("ticks that the sampler missed", rows, "missed_ticks_pct", "%"),
    ]
    shown = [picture for picture in pictures if picture is not None]
    return join(
        [
            table(f"Flags, of {counted(len(rows), 'row')}", ["flag", "rows", "share"], cells),
            tag("p", "docs/guides explains flags (metrics.md, datasets.md).", class_="soft") if cells else None,
            tag("div", *shown, class_="grid") if shown else EMPTY,
        ]
    )


def shared_facts(rows: Sequence[Row]) -> dict[str, Any]:
    """The same as JSON values."""
    spoilt = {row["run_id"] for row in rows if BACKGROUND_LOAD_FLAG in (row.get("flags") or ())}
    return {
        "runs": len({row["run_id"] for row in rows}),
        "rows": len(rows),
        "families": dict(Counter(str(row["family"]) for row in rows if row.get("family") is not None)),
        "provenance": dict(Counter(str(row.get("provenance")) for row in rows)),
        "flags": dict(flag_counts(rows)),
        "runs_with_foreign_load": sorted(spoilt),
        "step_s": summary(step_times(rows)),
        "patterns": {
            resource.key: dict(Counter(str(row.get(f"{resource.key}_pattern")) for row in rows))
            for resource in RESOURCES
        },
        "targets": {target.column: summary(values(rows, target.column)) for target in TARGETS},
    }


def _histogram(title: str, rows: Sequence[Row], column: str, unit: str) -> Html | None:
    found = values(rows, column)
    return histogram(title, found, with_unit(unit)) if found else None


def target_title(target: Target, cpu: bool) -> str:
    """The title of a target; without a GPU, that of the CPU."""
    if target.resource is None or target.metric is None:
        return target.title
    return resource_title(target.resource, cpu, target.metric.title)


def resource_title(resource: Resource, cpu: bool, metric: str = "") -> str:
    """The title of a resource. On `device: cpu` the GPU columns hold processor time."""
    name = resource.title.replace("GPU util", "CPU util") if cpu else resource.title
    return f"{name}, {metric}" if metric else name
