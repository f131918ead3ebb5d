"""TrainingStep: what a worker executes and moves in one step, op by op. The simulator computes times from it.

An OpGraph has the largest component of a graph, from which the inspector learns. A TrainingStep keeps all ops of the
worker in the order of the file. That is the order of creation, so the backward pass follows the forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.strategy import SERVER
from driple.pipeline.graph.device_placement import parse, worker_ops
from driple.pipeline.graph.loops import is_looped
from driple.pipeline.graph.output_sizes import guessed, output_bytes

if TYPE_CHECKING:
    from driple.pipeline.graph.raw_graph import RawGraph

WINDOW = ("height", "width", "inputs", "outputs", "stride", "side")
"""Columns of `TrainingStep.windows`: kernel height and width, input and output channels, stride, output side."""

_NO_WINDOW = [0] * len(WINDOW)
SCALAR_BYTES = 8
_COLLECTIVE = "CollectiveReduce"
_UPDATE = re.compile(r"(Resource)?(Sparse)?Apply")


class Transfer(NamedTuple):
    """A tensor that the worker receives before an op, or sends after it."""

    op: int
    server: int
    bytes: float


@dataclass(frozen=True, eq=False)
class OpDetails:
    """Facts of every op of a file that only the simulator needs."""

    read_bytes: NDArray[np.float64]
    """Bytes of the distinct tensors that it takes."""
    windows: NDArray[np.int64]
    """[N, 6]: see WINDOW; zeros for an op that is not a convolution of images."""
    looped: NDArray[np.bool_]
    """Whether the op is in a while loop: it runs once for each element of a sequence."""


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """The ops of a worker in their order, and the tensors that it exchanges with other tasks."""

    ops: tuple[str, ...]
    flops: NDArray[np.float64]
    """Of one execution; 0 where there is no formula."""
    read_bytes: NDArray[np.float64]
    written_bytes: NDArray[np.float64]
    windows: NDArray[np.int64]
    """[N, 6]: see WINDOW."""
    executions: NDArray[np.float64]
    """How often the op runs in a step."""
    on_device: NDArray[np.bool_]
    """False for an op that is placed on the host's processor beside a GPU."""
    pulls: tuple[Transfer, ...]
    """Variables that servers send, each before the first op that takes it."""
    pushes: tuple[Transfer, ...]
    """Gradients and other tensors that servers take, each after its op."""
    reduced: tuple[Transfer, ...] = ()
    """Tensors of an all-reduce, each after its op; their server is -1."""
    unsized: int = 0
    """Ops whose tensor size is a guess."""
    batch_size: int | None = None
    """Examples per step, if the file of the graph says."""

    @property
    def pulled_bytes(self) -> float:
        return sum(one.bytes for one in self.pulls)

    @property
    def pushed_bytes(self) -> float:
        return sum(one.bytes for one in self.pushes)

    def server_bytes(self, servers: int) -> tuple[list[float], list[float]]:
        """Bytes that the worker pulls from each server, and that it pushes to each."""
        pulled, pushed = [0.0] * servers, [0.0] * servers
        for found, moved in ((pulled, self.pulls), (pushed, self.pushes)):
            for one in moved:
                found[one.server] += one.bytes
        return pulled, pushed


def window_of(op: str, inputs: Sequence[Sequence[int] | None], outputs: Sequence[Sequence[int] | None]) -> list[int]:
    """The window of a convolution from its shapes (images as NHWC, kernels as HWIO); zeros if it has none."""
    place = _OPERANDS.get(op)
    if place is None:
        return _NO_WINDOW
    shapes = [(inputs if side == "in" else outputs) for side, _ in place]
    found = [own[index] if index < len(own) else None for own, (_, index) in zip(shapes, place, strict=True)]
    if any(shape is None or len(shape) != 4 for shape in found):
        return _NO_WINDOW
    kernel, large, small = (list(shape or ()) for shape in found)
    stride = max(1, round(large[1] / max(small[1], 1)))
    return [*(max(size, 0) for size in kernel), stride, max(small[1], 0)]


# Where the kernel, the larger and the smaller image of a convolution are: among the inputs or the outputs, and which.
_OPERANDS = {
    f"{prefix}{suffix}": operands
    for prefix in ("Conv2D", "DepthwiseConv2dNative")
    for suffix, operands in (
        ("", (("in", 1), ("in", 0), ("out", 0))),
        ("BackpropInput", (("in", 1), ("out", 0), ("in", 2))),
        ("BackpropFilter", (("out", 0), ("in", 0), ("in", 2))),
    )
}


def op_details(
    names: Sequence[str],
    ops: Sequence[str],
    shapes: Sequence[Sequence[Sequence[int] | None] | None],
    dtypes: Sequence[Sequence[str | None]],
    edges: NDArray[np.int64],
    outputs: NDArray[np.int64],
    batch_size: int | None,
) -> OpDetails:
    """The details of every op of a file; `edges` are in the order of the inputs of each op."""
    sizes = [
        [output_bytes([shape], [dtype], batch_size)[0] for shape, dtype in zip(own or (), kinds, strict=False)]
        for own, kinds in zip(shapes, dtypes, strict=True)
    ]
    inputs: list[list[tuple[int, int]]] = [[] for _ in ops]
    for (source, destination), output in zip(edges.tolist(), outputs.tolist(), strict=True):
        inputs[destination].append((source, output))
    known = [[None if shape is None else guessed(shape, batch_size) for shape in own or ()] for own in shapes]
    windows = [
        window_of(op, [known[s][o] if o < len(known[s]) else None for s, o in inputs[position]], known[position])
        if op in _OPERANDS
        else _NO_WINDOW
        for position, op in enumerate(ops)
    ]
    return OpDetails(
        read_bytes=np.array([sum(sizes[s][o] for s, o in set(own) if o < len(sizes[s])) for own in inputs]),
        windows=np.array(windows, dtype=np.int64).reshape(-1, len(WINDOW)),
        looped=np.array([is_looped(name) for name in names], dtype=bool),
    )


def training_step(raw: RawGraph, loop_length: int = 1) -> TrainingStep:
    """The step of the worker of a graph; `loop_length` is how often an op of a loop runs.

    Raises BadInput if the graph has no details, or no other task from which the worker takes variables.
    """
    if raw.details is None:
        raise BadInput(
            "the graph has no shapes, from which a simulation computes times; build it again with TensorFlow"
        )
    details = raw.details()
    lacking = [op for op, window in zip(raw.ops, details.windows, strict=True) if op in _OPERANDS and not window.any()]
    if lacking:
        raise BadInput(
            f"the graph has no shapes of {len(lacking)} convolutions, from which a simulation computes times; build it"
            f" again with TensorFlow (python -m driple.workloads.cli graph)"
        )
    known = {name: (device.job, device.task, device.kind) for name in set(raw.devices) for device in [parse(name)]}
    # All ops of the worker's task: on a GPU host some are on the processor, and they exchange tensors too.
    tasks = {
        known[name][:2] for name, mine in zip(raw.devices, worker_ops(raw.devices, None, raw.task), strict=True) if mine
    }
    mine = np.flatnonzero([known[name][:2] in tasks for name in raw.devices])
    number: NDArray[np.int64] = np.full(len(raw.ops), -1, dtype=np.int64)
    number[mine] = np.arange(len(mine))
    servers = np.array([_server(*known[name][:2]) for name in raw.devices], dtype=np.int64)
    pulls, pushes = _transfers(raw, number, servers)
    chosen = mine.tolist()
    kinds = {known[raw.devices[op]][2] for op in chosen}
    return TrainingStep(
        ops=tuple(raw.ops[op] for op in chosen),
        flops=np.nan_to_num(raw.flops[mine]),
        read_bytes=details.read_bytes[mine],
        written_bytes=raw.bytes[mine],
        windows=details.windows[mine],
        executions=np.where(details.looped[mine], float(loop_length), 1.0),
        on_device=np.array(["GPU" not in kinds or known[raw.devices[op]][2] == "GPU" for op in chosen], dtype=bool),
        pulls=pulls,
        pushes=pushes,
        reduced=() if pulls else _reduced(raw, number, details.read_bytes),
        unsized=int((~raw.sized[mine]).sum()),
        batch_size=raw.batch_size,
    )


def _reduced(raw: RawGraph, number: NDArray[np.int64], read_bytes: NDArray[np.float64]) -> tuple[Transfer, ...]:
    """What the all-reduce ops of a worker take. Where the runtime reduces outside the graph: what its updates take."""
    own = [op for op in range(len(raw.ops)) if number[op] >= 0]
    taking = [op for op in own if raw.ops[op].startswith(_COLLECTIVE)]
    taking = taking or [op for op in own if _UPDATE.match(raw.ops[op])]
    # The update of a resource variable has no output; it reads little beside its gradient.
    return tuple(Transfer(int(number[op]), -1, float(raw.bytes[op] or read_bytes[op])) for op in taking)


def _server(job: str | None, task: int | None) -> int:
    return (task or 0) if job == SERVER else -1


def _transfers(
    raw: RawGraph, number: NDArray[np.int64], servers: NDArray[np.int64]
) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
    """A tensor goes to a task once, however many ops of it take the tensor. Scalars (hyper-parameters) are left out."""
    source, destination = raw.edges[:, 0], raw.edges[:, 1]
    pulled: dict[tuple[int, int], Transfer] = {}
    pushed: dict[tuple[int, int, int], Transfer] = {}
    crossing = np.flatnonzero((servers[source] >= 0) != (servers[destination] >= 0))
    for edge in crossing[np.argsort(number[destination[crossing]], kind="stable")].tolist():
        first, last, output = int(source[edge]), int(destination[edge]), int(raw.edge_outputs[edge])
        size = raw.tensor_bytes(first, output)
        if size <= SCALAR_BYTES:
            continue
        if number[last] >= 0:
            pulled.setdefault((first, output), Transfer(int(number[last]), int(servers[first]), size))
        elif number[first] >= 0:
            server = int(servers[last])
            pushed.setdefault((first, output, server), Transfer(int(number[first]), server, size))
    return tuple(sorted(pulled.values())), tuple(sorted(pushed.values()))
