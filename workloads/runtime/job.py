"""Reads and checks job files, before TensorFlow is loaded and before a port is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, UnknownName, shown
from driple.contracts.json_values import read_json_file
from driple.contracts.run_spec import JobSpec, Measurement, RunSpec, TaskSpec, Workload
from driple.contracts.setting import CPU, Setting
from driple.contracts.strategy import STRATEGIES, device_fault
from driple.contracts.zoo import DATASETS, IMAGE, MAX_BATCH, MODELS, SEQUENCE, find_model, ordinary_size
from driple.workloads.models.registry import dataset_of, is_custom
from driple.workloads.runtime.optimisers import known as known_optimiser

LIMITS: dict[str, tuple[float, int]] = {
    "batch_size": (1, MAX_BATCH),
    "image_size": (1, 4096),
    "sequence_length": (1, 65536),
    "width": (0.01, 64),
}
"""Values outside of these ranges are typing errors. The smallest image of a model is in its entry of the registry."""

MOST_TOKENS = 2**31 - 1
"""Limit per batch: TensorFlow counts tokens in 32 bits."""


def read_job(path: Path) -> JobSpec:
    """The job of a file. Raises BadInput if the file cannot be read, is not a job, or has unknown names."""
    return read_json_file(path, _job)


def _job(value: Any) -> JobSpec:
    job = JobSpec.from_json(value)
    check_job(job)
    return job


def check_job(job: JobSpec) -> None:
    """Raises BadInput for a job that no task could run."""
    setting, workload = job.run.setting, job.run.workload
    check_workload(workload)
    fault = STRATEGIES[workload.strategy].fault(setting.servers, setting.workers)
    fault = fault or device_fault(workload.backend, setting.device != CPU)
    if fault is not None:
        raise BadInput(f"{setting}: {fault}")
    if is_custom(workload.model) and job.code_path is None:
        raise BadInput(f"model {shown(workload.model)} is the user's own, and the job has no code_path")
    for task in job.tasks:
        host, _, port = task.address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadInput(f"{task.task}: expected address:port, got {shown(task.address)}")
        if task.task.startswith("worker:") and setting.device != CPU and task.gpu is None:
            raise BadInput(f"{task.task}: no gpu index, and {setting} is a GPU setting")


def check_workload(workload: Workload) -> None:
    """Raises BadInput for unknown names and sizes out of range."""
    if not is_custom(workload.model):
        find_model(workload.model)
    dataset_of(workload)
    known_optimiser(workload.optimiser)
    if not is_custom(workload.model) and workload.dataset not in MODELS[workload.model].datasets:
        datasets = ", ".join(MODELS[workload.model].datasets)
        raise BadInput(f"{workload.model} is trained on {datasets}, not on {workload.dataset}")
    for name, (least, most) in LIMITS.items():
        value = getattr(workload, name)
        if value is not None and not least <= value <= most:
            raise BadInput(f"{name}: expected {least:g} to {most}, got {value}")
    length = workload.sequence_length or 1
    if workload.batch_size * length > MOST_TOKENS:
        most = MOST_TOKENS // length
        raise BadInput(f"batch_size: expected at most {most} sequences of {length}, got {workload.batch_size}")


def workload_of(
    model: str,
    dataset: str | None,
    batch_size: int,
    *,
    size: int | None = None,
    code_path: str | None = None,
    optimiser: str = "momentum",
    update: str = "sync",
    width: float = 1.0,
    sharding: str = "balanced",
    strategy: str = "ps",
    framework: str | None = None,
    backend: str | None = None,
    topology: str = Workload.topology,
) -> Workload:
    """A workload with the default dataset and sizes of the model where none are given.

    `size` is the image side or sequence length. The hash of `code_path`, a user's own model, is part of the workload.
    """
    known = None if is_custom(model) else find_model(model)
    if dataset is None:
        if known is None:
            raise BadInput(f"{shown(model)} is your own model: name its dataset with --dataset ({', '.join(DATASETS)})")
        dataset = known.datasets[0]
    if dataset not in DATASETS:
        raise UnknownName("dataset", dataset, tuple(DATASETS))
    reads = DATASETS[dataset]
    if size is None:
        size = ordinary_size(known, reads)
    elif reads.kind not in (IMAGE, SEQUENCE):
        raise BadInput(f"size: {dataset} has none, neither an image side nor a sequence length; omit it")
    framework = framework or STRATEGIES[strategy].default_framework
    workload = Workload(
        model=model,
        dataset=dataset,
        batch_size=batch_size,
        optimiser=optimiser,
        update=update,
        width=width,
        strategy=strategy,
        sharding=sharding,
        framework=framework,
        backend=backend or STRATEGIES[strategy].frameworks.get(framework, (Workload.backend,))[0],
        topology=topology,
        image_size=size if reads.kind == IMAGE else None,
        sequence_length=size if reads.kind == SEQUENCE else None,
        code_sha256=_sha256(code_path) if code_path else None,
    )
    check_workload(workload)
    return workload


def job_without_hosts(setting: Setting, workload: Workload, seed: int = 1, code_path: str | None = None) -> JobSpec:
    """A job for graph extraction, with addresses that are never used."""
    gpu = None if setting.device == CPU else 0
    job = JobSpec(
        run=RunSpec(setting, workload, Measurement(steps=1), together=(setting.tasks,), seed=seed),
        tasks=tuple(
            TaskSpec(task, "nowhere", f"127.0.0.1:{port}", gpu if task.startswith("worker:") else None)
            for port, task in enumerate(setting.tasks, start=1)
        ),
        code_path=code_path,
    )
    check_job(job)
    return job


def _sha256(path: str) -> str:
    import hashlib

    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
