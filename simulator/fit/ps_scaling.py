"""Scaling of asynchronous parameter-server jobs, against the measurements of CM-DARE (github cake-lab/CM-DARE).

A job is known by its bytes, its number of tensors, and the step time of one worker, from which the computing time
follows. The rows with more workers are predicted. Two constants of a server are fitted: time per tensor and time per
byte, both directions and the update together. Everything else is that of the host file.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.parameter_server import ParameterServerJob
from driple.simulator.segments import Moved, Segment

PIECES = 8
STEPS = 12
BYTES_PER_PARAMETER = 4


@dataclass(frozen=True)
class ScalingRow:
    """One measured job."""

    gpu: str
    model: str
    servers: int
    workers: int
    steps_per_s: float
    """Of all workers together."""
    bytes: float
    tensors: int


def read_rows(path: Path) -> list[ScalingRow]:
    """The rows of ps_cmdare.csv. Raises BadInput if the file is another one."""
    try:
        with path.open(newline="") as stream:
            return [
                ScalingRow(
                    row["gpu"],
                    row["model"],
                    int(row["servers"]),
                    int(row["workers"]),
                    float(row["steps_per_s"]),
                    float(row["params"]) * BYTES_PER_PARAMETER,
                    int(row["tensors"]),
                )
                for row in csv.DictReader(stream)
            ]
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (KeyError, ValueError):
        raise BadInput(f"{path}: not a table of parameter-server speeds (gpu, servers, workers, ...)") from None


def steps_per_s(row: ScalingRow, compute_s: float, host: HostModel, seed: int = 0) -> float:
    """The simulated speed of a job: each server has an equal part of the bytes and tensors."""
    part = row.bytes / row.servers / PIECES
    tensors = max(1, round(row.tensors / row.servers / PIECES))
    moved = {server: Moved(part, tensors) for server in range(row.servers)}
    # Forward segments take variables, backward segments give gradients; the backward pass takes twice the time.
    times = [compute_s / 3 / (PIECES / 2)] * (PIECES // 2) + [compute_s * 2 / 3 / (PIECES / 2)] * (PIECES // 2)
    twice = {server: Moved(2 * one.bytes, 2 * one.tensors) for server, one in moved.items()}
    segments = [
        Segment(t, t, 0.0, twice if number < PIECES // 2 else {}, {} if number < PIECES // 2 else twice)
        for number, t in enumerate(times)
    ]
    machines = {task: n for n, task in enumerate([f"ps:{s}" for s in range(row.servers)])}
    machines |= {f"worker:{k}": row.servers + k for k in range(row.workers)}
    job = ParameterServerJob(
        Cluster(machines, host, None),
        segments,
        row.servers,
        row.workers,
        sync=False,
        optimiser="momentum",
        steps=STEPS,
        seed=seed,
    )
    job.run()
    rates = [(len(times) - 3) / (times[-1] - times[2]) for times in job.begun]
    return float(sum(rates))


def computing_s(row: ScalingRow, host: HostModel) -> float:
    """The computing time with which one worker has the measured step time."""
    low, high = 1e-6, 1.0 / row.steps_per_s
    for _ in range(18):
        middle = (low + high) / 2
        if steps_per_s(row, middle, host) > row.steps_per_s:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def predict(rows: Sequence[ScalingRow], host: HostModel) -> list[tuple[ScalingRow, float]]:
    """Every row with more than one worker, and its simulated speed."""
    alone = {(row.gpu, row.model, row.servers): computing_s(row, host) for row in rows if row.workers == 1}
    found = []
    for row in rows:
        key = (row.gpu, row.model, row.servers)
        if row.workers > 1 and key in alone:
            found.append((row, steps_per_s(row, alone[key], host)))
    return found


def server_costs(host: HostModel, per_tensor_s: float, per_byte_s: float) -> HostModel:
    """A host whose servers take these times for a tensor and a byte, both directions and the update together."""
    return replace(
        host,
        rpc_s=per_tensor_s / 2,
        server_send_s_per_byte=per_byte_s / 2,
        server_receive_s_per_byte=per_byte_s / 4,
        apply_s_per_byte=per_byte_s / 4,
    )


def mape(found: Sequence[tuple[ScalingRow, float]]) -> float:
    """Mean absolute error of the speed in percent."""
    return 100 * float(np.mean([abs(speed / row.steps_per_s - 1) for row, speed in found]))
