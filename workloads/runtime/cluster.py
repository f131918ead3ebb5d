"""Addresses and devices of the tasks of a job, and the placement of variables on parameter servers."""

from __future__ import annotations

import math
from typing import Any

from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU
from driple.contracts.sharding import Sharding
from driple.contracts.strategy import STRATEGIES

SERVER_DEVICE = "/job:ps/replica:0/device:CPU:0"


def cluster_of(job: JobSpec) -> dict[str, list[str]]:
    """Addresses by role, for TensorFlow's ClusterSpec."""
    roles = {role: list(job.addresses(role)) for role in STRATEGIES[job.run.workload.strategy].roles}
    return {role: addresses for role, addresses in roles.items() if addresses}


def server_device(index: int) -> str:
    """The device of parameter server `index`."""
    return SERVER_DEVICE.replace("/device", f"/task:{index}/device")


def worker_device(job: JobSpec, index: int) -> str:
    """The device on which a worker computes. A task sees at most one GPU, so its index is 0."""
    return device_of_worker(index, on_gpu=job.run.setting.device != CPU)


def device_of_worker(index: int, *, on_gpu: bool) -> str:
    """The name of that device in graphs."""
    return f"/job:worker/replica:0/task:{index}/device:{'GPU' if on_gpu else 'CPU'}:0"


def device_setter(job: JobSpec, index: int) -> Any:
    """Device function for `v1.device`: variables go to parameter servers, all other ops to this worker."""
    import tensorflow.compat.v1 as v1
    from tensorflow.python.training.device_setter import STANDARD_PS_OPS

    servers = job.run.setting.servers
    if servers == 0:
        return worker_device(job, index)
    sharding = Sharding(servers, job.run.workload.sharding)
    choose = v1.train.replica_device_setter(
        ps_tasks=servers,
        ps_device=SERVER_DEVICE,
        worker_device=worker_device(job, index),
        ps_strategy=lambda op: sharding.place(_variable_bytes(op)),
    )
    chosen: dict[str, str] = {}

    def device(op: Any) -> str:
        if op.type in STANDARD_PS_OPS:
            return str(choose(op))
        asked = op.device
        if asked not in chosen:  # merging it anew for each of 20 000 ops is slow
            chosen[asked] = choose(op)
        return chosen[asked]

    return device


def _variable_bytes(op: Any) -> int:
    import tensorflow as tf

    return math.prod(int(d.size) for d in op.get_attr("shape").dim) * int(tf.as_dtype(op.get_attr("dtype")).size)
