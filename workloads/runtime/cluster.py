"""Who is in a job, and which of its parameter servers keeps which variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU

SERVER_DEVICE = "/job:ps/replica:0/device:CPU:0"


def cluster_of(job: JobSpec) -> dict[str, list[str]]:
    """Addresses by role, as TensorFlow wants them."""
    roles = {role: list(job.addresses(role)) for role in ("ps", "worker")}
    return {role: addresses for role, addresses in roles.items() if addresses}


def server_device(index: int) -> str:
    """The device of parameter server `index`."""
    return SERVER_DEVICE.replace("/device", f"/task:{index}/device")


def worker_device(job: JobSpec, index: int) -> str:
    """Where a worker computes. A task sees one GPU at most, so that is always number 0."""
    kind = "CPU" if job.run.setting.device == CPU else "GPU"
    return f"/job:worker/replica:0/task:{index}/device:{kind}:0"


class Balanced:
    """Gives each variable to the server that has the fewest bytes so far; the first server wins a tie."""

    def __init__(self, servers: int) -> None:
        self.loads = [0] * servers

    def __call__(self, op: Any) -> int:
        """The server's index for a variable's op."""
        return self.place(_bytes_of(op))

    def place(self, size: int) -> int:
        """The server's index for a variable of that many bytes."""
        index = self.loads.index(min(self.loads))
        self.loads[index] += size
        return index


class RoundRobin:
    """Gives variables to the servers in turn, whatever their size: what TensorFlow does by default."""

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self._next = 0

    def __call__(self, op: Any) -> int:
        """The server's index for a variable's op."""
        index = self._next
        self._next = (index + 1) % self._servers
        return index


def device_setter(job: JobSpec, index: int) -> Any:
    """For `v1.device`: variables go to parameter servers, all else to this worker."""
    import tensorflow.compat.v1 as v1
    from tensorflow.python.training.device_setter import STANDARD_PS_OPS

    servers = job.run.setting.servers
    if servers == 0:
        return worker_device(job, index)
    sharding: Callable[[Any], int] = (
        Balanced(servers) if job.run.workload.sharding == "balanced" else RoundRobin(servers)
    )
    choose = v1.train.replica_device_setter(
        ps_tasks=servers, ps_device=SERVER_DEVICE, worker_device=worker_device(job, index), ps_strategy=sharding
    )
    chosen: dict[str, str] = {}

    def device(op: Any) -> str:
        if op.type in STANDARD_PS_OPS:
            return str(choose(op))
        asked = op.device
        if asked not in chosen:  # else it is merged again for each of 20 000 ops
            chosen[asked] = choose(op)
        return chosen[asked]

    return device


def variable_bytes(shape: Sequence[int], item_bytes: int) -> int:
    """What a variable weighs."""
    return math.prod(shape) * item_bytes


def _bytes_of(op: Any) -> int:
    import tensorflow as tf

    return variable_bytes([d.size for d in op.get_attr("shape").dim], int(tf.as_dtype(op.get_attr("dtype")).size))
