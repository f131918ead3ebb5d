"""The micro-benchmark of a machine: everything that `driple-calibrate` needs from it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.formats.calibration_result import CPU_DEVICE, GPU_DEVICE, CalibrationResult
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.graphs.graph_build import use_tf1
from driple.workloads.microbench.copies import time_copies
from driple.workloads.microbench.op_cases import op_cases
from driple.workloads.microbench.op_times import time_op
from driple.workloads.microbench.transfers import time_transfers

CPU_BATCH = 8
GPU_BATCH = 32
"""Examples of a case: a GPU needs more to be busy."""

Say = Callable[[int, int, str], None]


def calibrate(device: str, threads: int, quick: bool, say: Say) -> CalibrationResult:
    """Measures.

    Args:
        device: `cpu`, or `gpu:<number>`.
        threads: intra-op threads; 0 for TensorFlow's default.
        quick: the short form.
        say: called before each part with its number, the number of parts, and its name.

    Raises:
        BadInput: this machine has no such device.
        RunFailed: TensorFlow could not run an op.
    """
    on_gpu = device.startswith(GPU_DEVICE)
    framework = framework_of("tensorflow")
    framework.prepare_environment(int(device[len(GPU_DEVICE) :]) if on_gpu else None)
    began = time.monotonic()
    version = framework.load()
    use_tf1()
    own = f"{GPU_DEVICE}0" if on_gpu else CPU_DEVICE  # the only GPU that this process sees
    title = _title(device)
    cases = op_cases(GPU_BATCH if on_gpu else CPU_BATCH, quick)
    parts = len(cases) + 1 + on_gpu
    ops = []
    try:
        for number, case in enumerate(cases):
            say(number, parts, "ops")
            ops.append(time_op(case, own, threads, quick))
        say(len(cases), parts, "transfers between worker and parameter server")
        transfers = time_transfers(threads, quick)
        if on_gpu:
            say(len(cases) + 1, parts, "copies")
        copies = time_copies(own) if on_gpu else ()
    except Exception as error:
        if framework.is_expected(error):
            raise RunFailed(framework.explain(error)) from None
        raise
    say(parts, parts, "done")
    return CalibrationResult(
        device=device,
        title=title,
        threads=threads,
        cores=len(os.sched_getaffinity(0)),
        date=datetime.now(timezone.utc).date().isoformat(),
        framework=f"{framework.title} {version}",
        quick=quick,
        seconds=round(time.monotonic() - began, 1),
        ops=tuple(ops),
        transfers=transfers,
        copies=copies,
    )


def _title(device: str) -> str:
    """The name of the device. Raises BadInput if there is none."""
    if not device.startswith(GPU_DEVICE):
        return _processor()
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    if not found:
        raise BadInput(
            f"--device {device}: TensorFlow finds no such GPU on this machine; --device cpu measures the CPU"
        )
    return str(tf.config.experimental.get_device_details(found[0]).get("device_name", device))


def _processor() -> str:
    with Path("/proc/cpuinfo").open() as stream:
        names = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    return names[0] if names else "processor"
