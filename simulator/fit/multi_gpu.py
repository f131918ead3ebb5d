"""Scaling of all-reduce jobs over the GPUs of one machine, against public tf_cnn_benchmarks figures.

A job is known by its step time on one GPU, which gives the computing time. Two numbers are fitted for each
interconnect: the rate at which a GPU sends to the next one of the ring, and the time that starting the reduction of a
tensor takes. Gradients are reduced after the backward pass: with reductions beside it, no pair of numbers gives both
the small models' overhead and that of models with many tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, ordinary_size
from driple.pipeline.graph.public import stored_step
from driple.simulator.collectives import AllReduceJob
from driple.simulator.fit.grid_fit import GridFit
from driple.simulator.fit.op_benchmarks import table
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.segments import Moved, Segment

RATES = tuple(float(rate) for rate in np.geomspace(4e9, 40e9, 8))
STARTS = tuple(float(seconds) for seconds in np.linspace(0.0, 2e-4, 9))
COLUMNS = (
    *("source", "gpu", "gpu_as_named", "model", "precision", "xla", "mode", "batch_per_gpu", "gpus", "nodes"),
    *("interconnect", "step_s"),
)


@dataclass(frozen=True)
class MultiGpuRow:
    """Median step time of one configuration."""

    source: str
    gpu: str
    machine: str
    model: str
    batch_size: int
    interconnect: str
    gpus: int
    step_s: float
    alone_s: float
    """On one GPU of the same machine."""


def read_rows(path: Path) -> list[MultiGpuRow]:
    """The fp32 rows of tf_cnn_benchmarks without XLA in measured.csv, as medians. Raises BadInput."""
    found: dict[tuple[str, str, str, str, int, str, int], list[float]] = {}
    try:
        for row in table(path, COLUMNS):
            plain = row["precision"] == "fp32" and row["xla"] == "0" and row["mode"] == "replicated-nccl"
            if plain and row["nodes"] == "1" and row["model"] in MODELS:
                named = (row["source"], row["gpu"], row["gpu_as_named"], row["model"], int(row["batch_per_gpu"]))
                found.setdefault((*named, row["interconnect"], int(row["gpus"])), []).append(float(row["step_s"]))
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    medians = {key: float(np.median(times)) for key, times in found.items()}
    return [
        MultiGpuRow(*key, step_s=step_s, alone_s=medians[(*key[:6], 1)])
        for key, step_s in sorted(medians.items())
        if key[6] > 1 and (*key[:6], 1) in medians
    ]


@lru_cache(maxsize=64)
def gradients(model: str) -> Moved:
    """What an all-reduce of a model's gradients adds up."""
    known = MODELS[model]
    dataset = DATASETS[known.datasets[0]]
    workload = Workload(model, dataset.name, 32, image_size=ordinary_size(known, dataset), strategy="allreduce")
    step = stored_step(workload, Setting.parse("v100-p0w2-1g"))
    if step is None:
        raise BadInput(f"{model}: no stored graph; zoo_graphs/ is not complete")
    return Moved(sum(one.bytes for one in step.reduced), len(step.reduced))


def step_time_s(row: MultiGpuRow, rate: float, start_s: float, host: HostModel) -> float:
    """The simulated step time with a ring of GPUs."""
    segments = [Segment(row.alone_s, row.alone_s, 0.0, reduced=gradients(row.model))]
    quiet = replace(host, session_s=0.0, barrier_s=0.0, noise=0.0, worker_s_per_byte=0.0, pcie_bytes_per_s=0.0)
    quiet = replace(quiet, collective_s=start_s)
    machines = {f"worker:{k}": k for k in range(row.gpus)}
    job = AllReduceJob(Cluster(machines, quiet, rate), segments, row.gpus, topology="ring", steps=2, seed=0)
    job.run()
    return float(job.begun[0][2] - job.begun[0][1])


def scaling(rows: Sequence[MultiGpuRow], host: HostModel) -> GridFit[MultiGpuRow, tuple[float, float]]:
    """The simulated times of all rows on the grid of rates and start times."""
    grid = [(rate, start_s) for rate in RATES for start_s in STARTS]
    return GridFit(rows, grid, lambda row, point: step_time_s(row, *point, host), lambda row: row.step_s)
