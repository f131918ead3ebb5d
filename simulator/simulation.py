"""The simulator for other packages: from a workload and a setting to the targets of a task.

found = simulate_workload(workload, Setting.parse("v100-p1w2-pcie"))
found.metrics("worker:0")["net_rx_burst_s"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, PUBLISHED, Setting
from driple.pipeline.graph.public import TrainingStep, stored_step
from driple.simulator.job_metrics import job_metrics
from driple.simulator.parameter_files import Parameters, known_devices, no_device, parameters, shown_path
from driple.simulator.simulate import SimulatedJob, simulate

__all__ = ["DeviceFit", "Simulation", "default_placement", "known_devices", "no_device", "simulate_workload"]


class DeviceFit(NamedTuple):
    """The device file behind a simulation, and how well its parameters fit what they were fitted to."""

    title: str
    kind: str
    """`cpu` or `gpu`."""
    path: str
    sha256: str
    error_pct: float | None
    """Of the fit to most points; None if no parameter has an error."""
    points: int | None
    source: str | None
    """What that fit was made to."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated job, and the files that it was computed from."""

    job: SimulatedJob
    parameters: Parameters

    @property
    def device(self) -> DeviceFit:
        """The device file that this was computed from."""
        file, path = self.parameters.device, self.parameters.device_path
        fitted = [one for one in file.parameters.values() if one.error_pct is not None]
        best = max(fitted, key=lambda one: one.points or 0, default=None)
        where = file.name if path is None else shown_path(path)
        fit = (None, None, None) if best is None else (best.error_pct, best.points, best.source)
        return DeviceFit(file.title, file.kind, where, file.sha256, *fit)

    def metrics(self, task: str = "worker:0", hz: float = 1000.0) -> dict[str, float | None]:
        """The targets of a task by column, and `step_s`."""
        return job_metrics(self.job, task, self.parameters.device.kind, hz=hz)


def simulate_workload(
    workload: Workload,
    setting: Setting,
    *,
    step: TrainingStep | None = None,
    together: Sequence[Sequence[str]] | None = None,
    files: Parameters | None = None,
    steps: int | None = None,
    seed: int = 0,
    rate_mbit: float | None = None,
) -> Simulation:
    """Simulates a workload on a setting.

    Args:
        workload: what is trained.
        setting: where.
        step: the training step of its graph; default that of a zoo model, which needs no TensorFlow.
        together: groups of tasks that share a machine; default that of the paper, else one machine per task.
        files: parameters; default those of the setting's device.
        steps: number of steps of each worker.
        seed: of the noise.
        rate_mbit: limit of every link, below that of the setting.

    Raises:
        BadInput: there is no device file, no graph, or a graph without shapes; one line with the remedy.
    """
    files = parameters(setting) if files is None else files
    if rate_mbit is not None and files.link_bytes_per_s is not None:
        files = replace(files, link_bytes_per_s=min(files.link_bytes_per_s, rate_mbit * 1e6 / 8))
    if step is None:
        step = stored_step(workload, setting)
    if step is None:
        raise BadInput(f"{workload.label}: no stored graph of this configuration; build it with TensorFlow")
    _check_servers(step, setting)
    # A short job is cheap: more steps give steadier means.
    steps = (12 if setting.servers * setting.workers <= 4 else 8) if steps is None else steps
    try:
        job = simulate(
            step,
            workload,
            setting,
            default_placement(setting) if together is None else together,
            files.device,
            files.host,
            files.link_bytes_per_s,
            steps=steps,
            seed=seed,
            one_processor=setting.device == CPU,
        )
    except BadInput as error:
        raise BadInput(f"{workload.label}: {error}") from None
    return Simulation(job, files)


def _check_servers(step: TrainingStep, setting: Setting) -> None:
    """Raises BadInput if the graph was built for another number of servers."""
    moved = {one.server for one in (*step.pulls, *step.pushes)}
    built_for = max(moved, default=-1) + 1
    if built_for > setting.servers or 0 < built_for < setting.servers <= len(step.pulls):
        raise BadInput(
            f"the graph is of a job with {built_for} ps, and {setting} has {setting.servers}: build it for that setting"
        )


def default_placement(setting: Setting) -> tuple[tuple[str, ...], ...]:
    """Groups of tasks that share a machine: as in the paper for its settings, else one machine per task."""
    if setting.one_machine:
        return (setting.tasks,)
    machines = next((one.machines for one in PUBLISHED if one.setting == setting), 0)
    if not machines:
        return tuple((task,) for task in setting.tasks)
    groups: list[list[str]] = [[] for _ in range(machines)]
    for role, count in (("ps", setting.servers), ("worker", setting.workers)):
        for number in range(count):
            groups[number * machines // count].append(f"{role}:{number}")
    return tuple(map(tuple, groups))
