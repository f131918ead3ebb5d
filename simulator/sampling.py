"""What a sampler sees of a simulated task: counters at its ticks, and utilisation as NVML reports it.

counter    the amount until the tick, in whole units (bytes, ns)
samples    NVML's buffered samples: the mean over the period that ends at the stamp, in whole percent
gauge      NVML's utilisation rates: the mean over the last window, read at the ticks, in whole percent
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.contracts.metrics import GPU, GPU_MEMORY, NET_RX, NET_TX
from driple.simulator.simulate import SimulatedJob
from driple.simulator.timeline import Timeline
from driple.simulator.training_job import BUSY, CPU, MEMORY, RX, TX

NVML_SAMPLE_S = 0.02
"""Period of NVML's buffered samples. Assumed: NVIDIA documents only that it depends on the product."""
NVML_GAUGE_S = 1 / 6
"""Window of NVML's gauge. NVIDIA documents 1/6 s to 1 s, depending on the product."""

SAMPLES = "samples"
GAUGE = "gauge"
METHODS = (SAMPLES, GAUGE)


@dataclass(frozen=True, eq=False)
class Readings:
    """Values of one column of a trace."""

    t_s: NDArray[np.float64]
    value: NDArray[np.float64]
    period_s: float | None = None
    """Of a device that stamps its own samples."""


def readings(job: SimulatedJob, task: str, hz: float, *, gpu: bool, method: str = SAMPLES) -> Mapping[str, Readings]:
    """The columns of a task's trace by name: counters of traffic and processor time and, of a worker, utilisation."""
    ticks = np.arange(0, int(job.end_s * hz) + 1) / hz
    found = {
        NET_TX.gpu_column: counter(job.of_task(task, TX), ticks),
        NET_RX.gpu_column: counter(job.of_task(task, RX), ticks),
        GPU.cpu_column: counter(job.of_task(task, CPU), ticks, per_unit=1e9),
    }
    if gpu and task.startswith("worker"):
        for resource, what in ((GPU, BUSY), (GPU_MEMORY, MEMORY)):
            line = job.of_task(task, what)
            found[resource.gpu_column] = samples(line, job.end_s) if method == SAMPLES else gauge(line, ticks)
    return found


def counter(line: Timeline, ticks: NDArray[np.float64], per_unit: float = 1.0) -> Readings:
    """A counter of whole units at the ticks."""
    return Readings(ticks, np.floor(line.until(ticks) * per_unit + 1e-6))


def samples(line: Timeline, end_s: float, period_s: float = NVML_SAMPLE_S) -> Readings:
    """Utilisation in percent over each period, stamped at its end."""
    edges = np.arange(0, int(end_s / period_s) + 1) * period_s
    return Readings(edges[1:], _percent(np.diff(line.until(edges)) / period_s), period_s)


def gauge(line: Timeline, ticks: NDArray[np.float64], window_s: float = NVML_GAUGE_S) -> Readings:
    """Utilisation in percent over the window before each tick."""
    before = line.until(np.maximum(ticks - window_s, 0.0))
    return Readings(ticks, _percent((line.until(ticks) - before) / np.minimum(np.maximum(ticks, 1e-9), window_s)))


def _percent(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.round(100 * share), 0, 100)
