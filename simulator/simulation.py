"""The simulator for other packages: from a workload and a setting to the targets of a task.

found = simulate_workload(workload, Setting.parse("v100-p1w2-pcie"))
found.metrics("worker:0")["net_rx_burst_s"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from numpy import diff

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU as CPU_KIND
from driple.contracts.formats.device import GPU
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, PUBLISHED, Setting
from driple.contracts.strategy import BACKENDS, GRPC, NCCL, STRATEGIES
from driple.pipeline.bursts.series_metrics import FINEST
from driple.pipeline.graph.public import TrainingStep, stored_step
from driple.simulator.collectives import pair_count
from driple.simulator.job_metrics import job_metrics
from driple.simulator.op_costs import at_speed, speed_factor
from driple.simulator.parameter_files import Parameters, known_devices, no_device, parameters, shown_path
from driple.simulator.sampling import NVML_SAMPLE_S
from driple.simulator.simulate import SimulatedJob, simulate
from driple.simulator.training_job import Progress

__all__ = [
    "DeviceFit",
    "MachineSpeed",
    "Simulation",
    "check_servers",
    "check_setting",
    "default_placement",
    "known_devices",
]
__all__ += ["no_device", "simulate_workload", "usual_backend"]

MOST_PAIRS = 1024
"""Of tasks that exchange tensors. Time grows with their square: so many take minutes."""


class MachineSpeed(NamedTuple):
    """A machine with processors beside that of the device file."""

    speed: float = 1.0
    """How much faster it is as a whole."""
    arithmetic: float = 1.0
    """How much faster its arithmetic is beyond that."""


class DeviceFit(NamedTuple):
    """The device file behind a simulation, and how well its parameters fit what they were fitted to.

    With a machine file, fit and source are those of the machine's speed.
    """

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
    machine: str | None = None
    """The machine file of the setting."""
    speed: float = 1.0
    """Of the machine, beside the one that the device file was fitted to."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated job, and the files that it was computed from."""

    job: SimulatedJob
    parameters: Parameters

    @property
    def device(self) -> DeviceFit:
        """The device file that this was computed from."""
        file, path = self.parameters.device, self.parameters.device_path
        machine, machine_path = self.parameters.machine, self.parameters.machine_path
        fitted = [one for one in (machine or file).parameters.values() if one.error_pct is not None]
        best = max(fitted, key=lambda one: one.points or 0, default=None)
        where = file.name if path is None else shown_path(path)
        return DeviceFit(
            file.title,
            file.kind,
            where,
            file.sha256,
            error_pct=None if best is None else best.error_pct,
            points=None if best is None else best.points,
            source=None if best is None else best.source,
            machine=None if machine_path is None else shown_path(machine_path),
            speed=speed_factor(file),
        )

    @property
    def coarse_s(self) -> float | None:
        """The period of NVML's samples, if steps are too short for it: GPU durations are then those of samples."""
        gpu = self.parameters.device.kind == GPU
        return NVML_SAMPLE_S if gpu and self.job.step_s < FINEST * NVML_SAMPLE_S else None

    @property
    def step_s(self) -> float:
        """The mean time of a step of all workers, without the first step of each."""
        return fmean(fmean(diff(times[1:])) for times in self.job.begun)

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
    topology: str | None = None,
    backend: str | None = None,
    speed: MachineSpeed | None = None,
    progress: Progress | None = None,
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
        topology: of an all-reduce; default that of the workload.
        backend: what carries the tensors of an all-reduce; default that of the workload.
        speed: of the machine beside that of the device file, for processors; default that of the setting's machine.
        progress: called often, with the share that is done.

    Raises:
        BadInput: no device file, no graph, a graph without shapes, or an absurd setting; one line with the remedy.
    """
    if not STRATEGIES[workload.strategy].has_simulation:
        raise BadInput(f"{workload.label}: strategy {workload.strategy} cannot be simulated; measure it")
    pairs = check_size(setting, workload.path if topology is None else topology)
    files = parameters(setting) if files is None else files
    if speed is not None and files.device.kind == CPU_KIND:
        files = replace(files, device=at_speed(files.device, *speed))
    if rate_mbit is not None and files.link_bytes_per_s is not None:
        files = replace(files, link_bytes_per_s=min(files.link_bytes_per_s, rate_mbit * 1e6 / 8))
    if step is None:
        step = stored_step(workload, setting)
    if step is None:
        raise BadInput(f"{workload.label}: no stored graph of this configuration; build it with TensorFlow")
    check_servers(step, setting)
    steps = _steps(pairs) if steps is None else steps
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
            topology=topology,
            backend=backend,
            progress=progress,
        )
    except BadInput as error:
        raise BadInput(f"{workload.label}: {error}") from None
    return Simulation(job, files)


def usual_backend(setting: Setting, topology: str, framework: str) -> str:
    """What carries gradients if nothing is said: NCCL in a ring of GPUs, else the default of the framework."""
    if setting.servers:
        return GRPC
    on_gpus = parameters(setting).device.kind == GPU
    return (
        NCCL if on_gpus and topology in BACKENDS[NCCL].topologies else STRATEGIES["allreduce"].frameworks[framework][0]
    )


def check_setting(setting: Setting, topology: str) -> None:
    """Raises BadInput if no run of a setting can be simulated: a bad or missing parameter file, or too many tasks."""
    check_size(setting, topology)
    parameters(setting)


def check_size(setting: Setting, topology: str) -> int:
    """The number of pairs of tasks that exchange tensors. Raises BadInput if it is absurd.

    Args:
        setting: numbers of servers and workers.
        topology: of an all-reduce, else the strategy.
    """
    pairs = setting.servers * setting.workers or pair_count(topology, setting.workers)
    if pairs > MOST_PAIRS:
        raise BadInput(
            f"{setting}: {pairs} pairs of tasks would exchange tensors, and a simulation takes at most {MOST_PAIRS};"
            " ask for fewer servers or workers"
        )
    return pairs


def _steps(pairs: int) -> int:
    """Of each worker. A short job is cheap, and more steps give steadier means; means over many workers are steady."""
    return next(steps for most, steps in ((4, 12), (200, 8), (400, 5), (MOST_PAIRS, 4)) if pairs <= most)


def check_servers(step: TrainingStep, setting: Setting) -> None:
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
