"""Times copies between host and GPU memory."""

from __future__ import annotations

import statistics
from typing import Any

from driple.contracts.formats.calibration_result import TO_DEVICE, TO_HOST, CopyTime
from driple.workloads.microbench.op_times import session, spread_pct, timed

SIZES = (1 << 20, 1 << 24)
"""Floats."""
REPEATS = 20


def time_copies(gpu: str) -> tuple[CopyTime, ...]:
    """Copies in both directions, of a small and a large tensor."""
    return tuple(_copy(way, size, gpu) for size in SIZES for way in (TO_DEVICE, TO_HOST))


def _copy(way: str, size: int, gpu: str) -> CopyTime:
    import tensorflow.compat.v1 as v1

    there, host = f"/device:{gpu.upper()}", "/device:CPU:0"
    source, target = (host, there) if way == TO_DEVICE else (there, host)
    with v1.Graph().as_default():
        with v1.device(source):
            variable = v1.Variable(v1.zeros((size,)), use_resource=False)
        with v1.device(target):
            copied = v1.identity(variable)
            arrived: Any = copied[0]  # delivered after the whole tensor is there
        with session(0) as running:
            running.run(v1.global_variables_initializer())
            run = running.make_callable(arrived)
            run()
            times = [timed(run).wall for _ in range(REPEATS)]
    return CopyTime(way, 4.0 * size, statistics.median(times), spread_pct(times), len(times))
