"""A prediction as text: a table of resources, then the step time, the inspector and the novelty of the workload."""

from __future__ import annotations

import math
from collections.abc import Sequence

from driple.contracts.formats.dataset import SIMULATED, is_simulated
from driple.contracts.metrics import (
    AMOUNT,
    BURST,
    GPU,
    GPU_MEMORY,
    IDLE,
    RESOURCES,
    TARGET_OF_COLUMN,
    Resource,
    Target,
    burst_target,
)
from driple.contracts.strategy import NCCL, WORKER
from driple.inspector.data.scaling import FAR as TIMES
from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict.novelty import EDGE, FAR, LIKE, Novelty
from driple.inspector.predict.number_format import figures, quantity, span
from driple.inspector.predict.prediction import TIME_MODEL, InspectorInfo, Prediction, SimulationInfo
from driple.inspector.time.step_distribution import LEVEL

VERDICTS = {
    LIKE: "like the training data",
    EDGE: "at the edge of the training data",
    FAR: "far outside the training data: take with care",
}
NO_ROWS = "no interval and no novelty: a simulation learns from no rows, so it has neither"
NO_ROWS_BUT_STEP = "metrics without interval and novelty: a simulation learns from no rows, so it has neither"
OUTSIDE_SHOWN = 3
ONE_CORE_PCT = 100.0
GUESSED = 0.1
"""Share of ops from which guessed sizes are reported. Graphs of the zoo have a few small ones."""


def processor_name(answers: Sequence[Prediction]) -> str:
    """`CPU`, `GPU` or `CPU/GPU`."""
    return "/".join(sorted({"CPU" if one.on_cpu else "GPU" for one in answers}))


def resource_name(resource: Resource, on_cpu: bool) -> str:
    """The title of a resource. On CPUs, GPU utilisation is the processor time of the task."""
    if resource is GPU and on_cpu:
        return "CPU utilisation"
    return resource.title.replace(" utilisation", "") if resource is GPU_MEMORY else resource.title


def one(answer: Prediction) -> list[str]:
    """The lines for a single answer."""
    query, step, cycle = answer.query, answer.step_time, answer.cycle
    header = f"{workload_label(query.workload)} on {query.setting}, as a {role_name(answer.role)} sees it"
    lines = [*warnings([answer.basis]), header, "", *_table(answer), ""]
    if step is not None:
        line = f"step time     {quantity(step.seconds, 's')}{_step_note(answer)}"
        if cycle is not None and not cycle.agreed and step.resource is not None:
            ends = f"{quantity(cycle.least, 's')} to {quantity(cycle.greatest, 's')}"
            line += f", take with care: resources differ, {ends}"
        if answer.examples_per_s is not None:
            line += f"; {figures(answer.examples_per_s)} examples/s of the job"
        lines.append(line)
    if answer.step_note:
        lines.append(f"{'':<13} {answer.step_note}")
    if answer.traffic is not None:
        lines += answer.traffic.lines()
    return [*lines, *rests_on(answer)]


def _step_note(answer: Prediction) -> str:
    """Where the step time comes from; nothing after a simulation, which the first line names."""
    step, ends = answer.step_time, answer.step_interval()
    if ends is not None:
        return f" ({TIME_MODEL}; {span(ends, 's')} with {100 * LEVEL:.0f} %)"
    if step is None or step.resource is None:
        return " (simulated, on the machine of the device file)" if answer.step_note else ""
    return f" (burst + idle of {resource_name(step.resource, answer.on_cpu)})"


def measured_lines(answer: Prediction) -> list[str]:
    """Predicted next to measured values; empty without measured ones."""
    rows = [["", "predicted", "measured", "difference"]]
    for column, measured in answer.measured.items():
        target = TARGET_OF_COLUMN.get(column)
        if target is None:
            name, unit, predicted, spread = "step time", "s", answer.step_time_s or math.nan, None
        else:
            name, unit, predicted, spread = target.title, target.unit, answer.value(target), answer.spread_of(target)
        if target is not None and target.resource is not None and target.metric is not None:
            name = f"{resource_name(target.resource, answer.on_cpu)}, {target.metric.title}"
        difference = f"{100 * (predicted / measured - 1):+.0f} %" if measured else ""
        rows.append([name, quantity(predicted, unit, spread), quantity(measured, unit), difference])
    query = answer.query
    head = f"predicted next to measured, {workload_label(query.workload)} on {query.setting}"
    head += f" (measured {answer.measured_note})" if answer.measured_note else ""
    return ["", head, *aligned(rows, gap=3)] if answer.measured else []


def rests_on(answer: Prediction) -> list[str]:
    """What is behind a prediction: inspector and training data, or the simulation; and the graph."""
    if answer.simulation is None:
        labels, found = ["inspector", "this graph"], [basis_line(answer.basis), *near_lines(answer.novelty)]
    else:
        no_rows = NO_ROWS if answer.step is None else NO_ROWS_BUT_STEP
        labels, found = ["simulator"], [basis_line(answer.simulation), *carried_by(answer.simulation), no_rows]
    found += answer.graph_notes
    if answer.limited:
        found.append(f"at the limit in {', '.join(answer.limited)}: {TIMES:g} times all that was measured, or more")
    if answer.unsized > GUESSED * answer.ops:
        remedy = "" if answer.query.workload.get("batch_size") else ": --batch-size may tell them"
        found.append(f"{answer.unsized} of its {answer.ops} ops have sizes that are guessed{remedy}")
    if not answer.traffic_known:
        found.append(
            "it names neither other tasks nor variables: what crosses the network is taken as usual in training"
        )
    labels += [""] * (len(found) - len(labels))
    return [f"{label:<13} {line}" for label, line in zip(labels, found, strict=True)]


def carried_by(about: SimulationInfo) -> list[str]:
    """What carries the gradients of an all-reduce."""
    if about.backend is None:
        return []
    way = "from GPU to GPU; on one machine no network interface sees it" if about.backend == NCCL else "between hosts"
    return [f"gradients by {about.backend}, {way} (--backend chooses another)"]


def warnings(every: Sequence[InspectorInfo | SimulationInfo]) -> list[str]:
    """Lines about simulations, and simulated or unfinished inspectors."""
    lines = []
    for provenance in dict.fromkeys(about.provenance for about in every if is_simulated(about.provenance)):
        same = [about for about in dict.fromkeys(every) if about.provenance == provenance]
        folders = [str(about.folder) for about in same if isinstance(about, InspectorInfo)]
        if folders:
            only = ", not from measurements" if provenance == SIMULATED else ""
            lines.append(f"SIMULATED: {', '.join(folders)} learned from {provenance} rows{only}")
        files = [about.device_file for about in same if isinstance(about, SimulationInfo)]
        if files:
            lines.append(f"SIMULATED: computed by simulation from {', '.join(dict.fromkeys(files))}; not measured")
    cautions = (about.caution for about in every if isinstance(about, SimulationInfo))
    lines += [f"MACHINE: {caution}" for caution in dict.fromkeys(cautions) if caution is not None]
    for about in dict.fromkeys(every):
        if isinstance(about, InspectorInfo) and not about.finished:
            lines.append(f"UNFINISHED: the training of {about.folder} was interrupted; driple-train --resume goes on")
    return [*lines, ""] if lines else []


def basis_line(about: InspectorInfo | SimulationInfo) -> str:
    """An inspector and its training data, or a simulation and its device file."""
    if isinstance(about, SimulationInfo):
        points = "" if about.points is None else f" on {about.points} measurements"
        where = "" if about.caution is None else "on its machine "
        error = "its error is not known"
        if about.error_pct is not None:
            error = f"{where}its fit is off by {about.error_pct:g} %{points}"
        return f"device file {about.device_file} ({about.device}): {error}"
    rows = "" if about.rows is None else f"{about.rows} "
    networks = f"{about.networks} networks" if about.networks > 1 else "1 network: no spread"
    return f"{about.folder}: {rows}{about.provenance} workloads ({about.split} split), {networks}"


def near_lines(near: Novelty | None) -> list[str]:
    """The novelty of a workload."""
    if near is None:
        return ["nearness not known: no training rows beside the inspector, and its dataset is not here"]
    nearest = ", ".join(f"{label} ({distance:.2f})" for label, distance in near.nearest)
    by_distance = FAR if near.distance > near.edge_below else EDGE if near.distance > near.like_below else LIKE
    why = "by single facts, " if near.framework_seen else "by its framework, "
    why = "" if near.verdict in (LIKE, by_distance) else why
    lines = [
        f"{VERDICTS[near.verdict]}: {why}{near.distance:.2f} away (like up to {near.like_below:.2f}, edge up to "
        f"{near.edge_below:.2f})",
        *([near.framework_line] if near.framework_line else []),
        f"nearest are {nearest}",
    ]
    if near.outside and near.verdict != LIKE:
        more = len(near.outside) - OUTSIDE_SHOWN
        text = "; ".join(map(str, near.outside[:OUTSIDE_SHOWN])) + (f"; and {more} more" if more > 0 else "")
        lines.append(f"beyond training in {text}")
    return lines


def _table(answer: Prediction) -> list[str]:
    rows, others, unknown = [["", "burst", "idle", "level in a burst"]], [], []
    for resource in RESOURCES:
        targets = [burst_target(resource, metric) for metric in (BURST, IDLE, AMOUNT)]
        if all(math.isnan(answer.value(target)) for target in targets):
            unknown.append(resource_name(resource, answer.on_cpu))
            continue
        rows.append([resource_name(resource, answer.on_cpu), *(_cell(answer, target) for target in targets)])
    for target in (TARGET_OF_COLUMN[name] for name in answer.columns):
        if target.resource is None and not math.isnan(answer.value(target)):
            others.append([target.title, _cell(answer, target)])
    lines = [*aligned(rows, gap=3), *(["", *aligned(others, gap=3)] if others else [])]
    if answer.on_cpu and answer.value(burst_target(GPU, AMOUNT)) > ONE_CORE_PCT:
        lines.append("of CPU utilisation, 100 % is one core")
    if answer.coarse_s is not None:
        period = quantity(answer.coarse_s, "s")
        lines.append(f"the GPU is sampled every {period}: its bursts and idle times say nothing about such short steps")
    if unknown:
        # A simulated GPU has readings of every resource: what is null there shows no burst.
        read = answer.simulation is not None and answer.role == WORKER and not answer.on_cpu
        why = "no burst" if read else "not measured on this device"
        lines.append(f"{why}: {', '.join(unknown)}")
    return lines


def _cell(answer: Prediction, target: Target) -> str:
    return quantity(answer.value(target), target.unit, answer.spread_of(target))


def aligned(rows: Sequence[Sequence[str]], gap: int = 2, left: int = 1) -> list[str]:
    """Columns of equal width: the first `left` to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    signs = ["<" if column < left else ">" for column in range(len(widths))]
    cells = ([f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)] for row in rows)
    return [(" " * gap).join(row).rstrip() for row in cells]


def role_name(role: str) -> str:
    """The full name of a role."""
    return {"ps": "parameter server"}.get(role, role)
