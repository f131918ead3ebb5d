"""HostModel: what a machine and the framework's runtime cost beside the ops: the parameters of a host file."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import HOST, DeviceFile


@dataclass(frozen=True)
class HostModel:
    """Seconds per byte, per tensor and per step; every one is at least 0."""

    rpc_s: float
    """A server's time for a tensor, in each direction."""
    server_send_s_per_byte: float
    """A server's time for a byte that it sends."""
    server_receive_s_per_byte: float
    """A server's time for a byte that it receives and adds up."""
    apply_s_per_byte: float
    """A server's time for a byte of a variable that it updates."""
    worker_s_per_byte: float
    """A worker's time for a byte, in each direction."""
    session_s: float
    """From the start of a step to the first request."""
    barrier_s: float
    """From the last update of a synchronous step to the start of the next."""
    noise: float
    """Standard deviation of the logarithm of the computing time from step to step."""
    start_phase: float
    """Asynchronous workers start apart by this share of a step; 0 for all at once, 1 for evenly spread."""
    cores: float = 0.0
    """Processors that all tasks of the machine share; 0 if no task uses one."""
    cpu_worker_s_per_byte: float = 0.0
    """Processor time of a worker for a byte, in each direction."""
    cpu_server_s_per_byte: float = 0.0
    """Processor time of a server for a byte, in each direction."""
    cpu_apply_s_per_byte: float = 0.0
    """Processor time of a server for a byte of a variable, per tensor that the update reads or writes."""
    cpu_worker_s_per_tensor: float = 0.0
    """Processor time of a worker for the call that moves a tensor, in each direction; likewise of a server."""
    cpu_server_s_per_tensor: float = 0.0
    cpu_session_s: float = 0.0
    """Processor time of a worker per step outside its ops, before its first request."""
    cpu_server_session_s: float = 0.0
    """Processor time of a server per step of each worker, before it answers."""
    parallel: float = 1.0
    """Processors that the ops of a worker use at a time, if they are free."""
    pcie_bytes_per_s: float = 0.0
    """Rate of a copy between host and GPU memory, in each direction, shared by the GPUs of a machine; 0: no limit."""
    nccl_bytes_per_s: float = 0.0
    """Rate at which NCCL sends from a GPU to another one of its machine, in each direction; 0: that of a copy."""
    latency_s: float = 0.0
    """Delay of a message of an all-reduce."""
    collective_s: float = 0.0
    """From one all-reduce of a tensor to the next: starting it on all workers."""

    def at_speed(self, speed: float) -> HostModel:
        """The model of a machine whose processors are faster as a whole; waits and links are not."""
        return replace(self, **{name: value / speed for name, value in self._cpu.items()}) if speed != 1.0 else self

    def uses_processors(self, computes: bool) -> bool:
        """Whether tasks use the processors of their machine: to compute, or to move tensors."""
        return computes or any(self._cpu.values())

    @property
    def _cpu(self) -> dict[str, float]:
        """Costs in seconds of a processor."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name.startswith("cpu_")}


def host_model(file: DeviceFile) -> HostModel:
    """The model of a host file. Raises BadInput for a file of another kind, or a missing parameter."""
    if file.kind != HOST:
        raise BadInput(f"kind: expected {HOST}, got {file.kind}")
    needed = {one.name for one in fields(HostModel) if one.default is MISSING}
    known = [one.name for one in fields(HostModel)]
    return HostModel(**{name: file.value(name) for name in known if name in needed or name in file.parameters})


UPDATE_TENSORS = {"sgd": 1, "momentum": 2, "rmsprop": 3, "adam": 4}
"""Tensors of a variable's size that an update of each optimiser reads or writes beside the gradient."""
