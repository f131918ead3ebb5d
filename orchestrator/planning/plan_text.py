"""A plan and the model zoo as text and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from driple.contracts.command import printable
from driple.contracts.formats.dataset import MEASURED, SIMULATED
from driple.contracts.json_values import to_plain
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, ordinary_size
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.placement import PlacedTask
from driple.orchestrator.planning.plan import PlannedRun


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with columns as wide as their widest cell."""
    cells = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def plan_text(experiment: Experiment, runs: Sequence[PlannedRun], done: frozenset[str], simulated: bool = False) -> str:
    """The plan as tables of runs and placements, and counts at the end."""
    rows = [
        (
            number,
            run.spec.setting,
            run.spec.workload.label,
            run.spec.network.label or "-",
            run.spec.repetition,
            "yes" if run.id in done else "no",
            run.id.rpartition("-")[2],
        )
        for number, run in enumerate(runs, 1)
    ]
    placements: dict[Setting, tuple[PlacedTask, ...]] = {run.spec.setting: run.tasks for run in runs}
    tasks = [
        (setting, item.task, item.host, "-" if item.gpu is None else item.gpu)
        for setting in placements
        for item in placements[setting]
    ]
    measured = experiment.measurement
    length = f"{measured.steps} steps" if measured.steps else f"{measured.duration_s:g} s"
    if measured.until_pct is not None:
        length = f"{measured.least_steps} to {length} (until {measured.until_pct:g} %)"
    return "\n".join(
        (
            *simulated_lines(simulated),
            table(("#", "setting", "workload", "network", "rep", "done", "hash"), rows),
            "",
            table(("setting", "task", "host", "gpu"), tasks),
            "",
            f"{experiment.name}: {_count(runs, 'run')} ({_product(experiment)}), "
            f"{len(done)} done, {len(runs) - len(done)} to do",
            f"each: {measured.warmup_steps} warm-up steps, then {length} sampled at {measured.sampling_hz:g} Hz, "
            f"on {SIMULATED if simulated else experiment.inventory.kind} hosts{_share(experiment)}",
        )
    )


def _share(experiment: Experiment) -> str:
    share = experiment.cores_per_host
    return "" if share is None else f" of {share:g} cores each"


def simulated_lines(simulated: bool) -> tuple[str, ...]:
    """The first lines of a text about simulated runs; none for others."""
    return (f"{SIMULATED.upper()}: these runs are simulated, not measured", "") if simulated else ()


def provenance_name(simulated: bool) -> str:
    """The provenance of the runs of a sweep."""
    return SIMULATED if simulated else MEASURED


def plan_json(
    experiment: Experiment, runs: Sequence[PlannedRun], done: frozenset[str], simulated: bool = False
) -> dict[str, Any]:
    """The plan as plain values."""
    return {
        "experiment": experiment.name,
        "provenance": provenance_name(simulated),
        "source": experiment.source,
        "hosts": SIMULATED if simulated else experiment.inventory.kind,
        "counts": {"runs": len(runs), "done": len(done), "to_do": len(runs) - len(done)},
        "runs": [
            {
                "id": run.id,
                "setting": str(run.spec.setting),
                "workload": to_plain(run.spec.workload),
                "network": to_plain(run.spec.network),
                "measurement": to_plain(run.spec.measurement),
                "repetition": run.spec.repetition,
                "seed": run.spec.seed,
                "tasks": [to_plain(item) for item in run.tasks],
                "done": run.id in done,
            }
            for run in runs
        ],
    }


def zoo_json() -> dict[str, Any]:
    """The zoo as plain values."""
    models = []
    for model in MODELS.values():
        sizes = {name: ordinary_size(model, DATASETS[name]) for name in model.datasets}
        models.append({"name": model.name, "family": model.family, "datasets": sizes})
    return {"models": models}


def zoo_text() -> str:
    """The zoo as a table."""
    rows = [
        (
            entry["name"],
            entry["family"],
            ", ".join(f"{name} ({size or '-'})" for name, size in entry["datasets"].items()),
        )
        for entry in zoo_json()["models"]
    ]
    return f"{table(('model', 'family', 'dataset (ordinary size)'), rows)}\n\n{len(rows)} models"


def _product(experiment: Experiment) -> str:
    """How the number of runs follows from the experiment."""
    parts = [
        f"{_count(part.settings, 'setting')} x {_count(part.workloads, 'workload')} x "
        f"{_count(part.networks, 'network condition')}"
        for part in experiment.parts
    ]
    repetitions = f"{experiment.repetitions} repetition{'' if experiment.repetitions == 1 else 's'}"
    return f"{parts[0]} x {repetitions}" if len(parts) == 1 else f"{' + '.join(parts)}, each x {repetitions}"


def _count(items: Sequence[object], word: str) -> str:
    return f"{len(items)} {word}{'' if len(items) == 1 else 's'}"
