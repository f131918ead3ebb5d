"""Scaling of all-reduce jobs over the GPUs of one machine, against public tf_cnn_benchmarks figures.

A job is known by its step time on one GPU, which gives the computing time. One number is fitted for each interconnect:
the rate at which a GPU sends to the next one of the ring.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, ordinary_size
from driple.pipeline.graph.public import stored_step
from driple.simulator.collectives import AllReduceJob
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.segments import Moved, Segment

PIECES = 8
RATES = tuple(float(rate) for rate in np.geomspace(1e9, 60e9, 24))


@dataclass(frozen=True)
class MultiGpuRow:
    """Median step time of one configuration."""

    gpu: str
    model: str
    batch_size: int
    interconnect: str
    gpus: int
    step_s: float
    alone_s: float
    """On one GPU of the same machine."""


def read_rows(path: Path) -> list[MultiGpuRow]:
    """The fp32 rows of tf_cnn_benchmarks without XLA in measured.csv, as medians. Raises BadInput."""
    found: dict[tuple[str, str, int, str, int], list[float]] = {}
    try:
        with path.open(newline="") as stream:
            for row in csv.DictReader(stream):
                plain = row["precision"] == "fp32" and row["xla"] == "0" and row["mode"] == "replicated-nccl"
                if plain and row["nodes"] == "1" and row["model"] in MODELS:
                    key = (row["gpu_as_named"], row["model"], int(row["batch_per_gpu"]), row["interconnect"])
                    found.setdefault((*key, int(row["gpus"])), []).append(float(row["step_s"]))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (KeyError, ValueError):
        raise BadInput(f"{path}: not a table of training speeds (gpu, model, batch_per_gpu, ...)") from None
    medians = {key: float(np.median(times)) for key, times in found.items()}
    return [
        MultiGpuRow(*key, step_s=step_s, alone_s=medians[(*key[:4], 1)])
        for key, step_s in sorted(medians.items())
        if key[4] > 1 and (*key[:4], 1) in medians
    ]


def gradient_bytes(model: str) -> float:
    """Bytes that an all-reduce of a model's gradients adds up."""
    known = MODELS[model]
    dataset = DATASETS[known.datasets[0]]
    workload = Workload(model, dataset.name, 32, image_size=ordinary_size(known, dataset), strategy="allreduce")
    step = stored_step(workload, Setting.parse("v100-p0w2-1g"))
    assert step is not None
    return sum(one.bytes for one in step.reduced)


def step_time_s(row: MultiGpuRow, size: float, rate: float, host: HostModel) -> float:
    """The simulated step time with a ring of GPUs."""
    forward, backward = row.alone_s / 3, row.alone_s * 2 / 3
    segments = [Segment(forward, forward, 0.0)]
    segments += [Segment(backward / PIECES, backward / PIECES, 0.0, reduced=Moved(size / PIECES, 1))] * PIECES
    quiet = replace(host, session_s=0.0, barrier_s=0.0, noise=0.0, worker_s_per_byte=0.0, pcie_bytes_per_s=0.0)
    machines = {f"worker:{k}": k for k in range(row.gpus)}
    job = AllReduceJob(Cluster(machines, quiet, rate), segments, row.gpus, topology="ring", steps=2, seed=0)
    job.run()
    return float(job.begun[0][2] - job.begun[0][1])


def predict(rows: Sequence[MultiGpuRow], host: HostModel) -> list[tuple[MultiGpuRow, float]]:
    """Every row with its simulated time, at a rate that was fitted to the rows of other models."""
    size = {model: gradient_bytes(model) for model in {row.model for row in rows}}
    times = {(row, rate): step_time_s(row, size[row.model], rate, host) for row in rows for rate in RATES}
    found = []
    for row in rows:
        others = [one for one in rows if one.interconnect == row.interconnect and one.model != row.model]
        errors = [np.mean([abs(np.log(times[one, rate] / one.step_s)) for one in others]) for rate in RATES]
        found.append((row, times[row, RATES[int(np.argmin(errors))]]))
    return found
