"""Plans the runs of an experiment in order. Pure: the same experiment always gives the same plan."""

from __future__ import annotations

from dataclasses import dataclass

from driple.contracts.run_spec import RunSpec
from driple.contracts.setting import Setting
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.placement import PlacedTask, place, together


@dataclass(frozen=True)
class PlannedRun:
    """A run and the placement of its tasks."""

    spec: RunSpec
    id: str  # `spec.id`, computed once
    tasks: tuple[PlacedTask, ...]


def plan(experiment: Experiment) -> tuple[PlannedRun, ...]:
    """All runs of an experiment in order.

    Repetitions are the outer loop: everything is measured once before anything is measured twice, and slow drift of a
    machine affects all workloads.
    """
    placements: dict[Setting, tuple[PlacedTask, ...]] = {
        setting: place(setting, experiment.policy, experiment.inventory) for setting in experiment.settings
    }
    groups = {setting: together(placed) for setting, placed in placements.items()}
    once = dict.fromkeys(
        (setting, workload, network)
        for part in experiment.parts
        for setting in part.settings
        for workload in part.workloads
        for network in part.networks
    )
    runs = []
    for repetition in range(experiment.repetitions):
        for setting, workload, network in once:
            spec = RunSpec(
                setting=setting,
                workload=workload,
                measurement=experiment.measurement,
                together=groups[setting],
                network=network,
                seed=experiment.seed + repetition,
                repetition=repetition,
                cores_per_host=experiment.cores_per_host,
            )
            runs.append(PlannedRun(spec, spec.id, placements[setting]))
    return tuple(runs)
