"""StepBuilder: writes a training step of a data-parallel worker op by op, as TensorFlow's graphs have it.

Used for steps that TensorFlow did not build. The structure is that of TensorFlow 1: variables, ops on the worker, an
op per variable that applies its gradient. With parameter servers, variables and updates are on the servers, which
contracts/sharding.py chooses. In an all-reduce each gradient goes through a collective op as soon as it exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from driple.contracts.formats.graph import DATA, ELEMENT_BYTES
from driple.contracts.op_flops import flops as op_flops
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, Setting
from driple.contracts.sharding import Sharding
from driple.contracts.strategy import STRATEGIES
from driple.contracts.traffic_formulas import COUNTER_BYTES
from driple.workloads.graphs.graph_writer import Edge, Graph, Node
from driple.workloads.runtime.cluster import device_of_worker, server_device

Value = tuple[int, int]
"""A tensor: the number of its op, and which output of the op."""
REDUCE = "CollectiveReduceV2"
UPDATES = {"sgd": "ApplyGradientDescent", "momentum": "ApplyMomentum", "rmsprop": "ApplyRMSProp", "adam": "ApplyAdam"}
SLOTS = {"sgd": 0, "momentum": 1, "rmsprop": 1, "adam": 2}
"""Tensors of the size of a variable that each optimiser keeps for it."""


@dataclass(frozen=True)
class StepKind:
    """What a step depends on besides its model."""

    setting: Setting
    strategy: str
    optimiser: str = Workload.optimiser
    sharding: str = Workload.sharding
    task: str = "worker:0"

    @property
    def reduces(self) -> bool:
        """Whether gradients are summed over the workers."""
        return STRATEGIES[self.strategy].has_topology


@dataclass(frozen=True)
class Tensor:
    """Shape and dtype of an output. A dimension is -1 if it is unknown, and the shape None if the rank is."""

    shape: tuple[int, ...] | None
    dtype: str = "float32"

    @property
    def bytes(self) -> int | None:
        """None if the size is unknown."""
        if self.shape is None or -1 in self.shape or self.dtype not in ELEMENT_BYTES:
            return None
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


class StepBuilder:
    """Collects the ops of a step in the order of their execution."""

    def __init__(self, kind: StepKind, variables: Iterable[tuple[str, Tensor]]) -> None:
        """`variables` are all variables of the model in the order of their creation, which decides on the servers."""
        self._kind = kind
        self._worker = device_of_worker(int(kind.task.partition(":")[2]), on_gpu=kind.setting.device != CPU)
        self._nodes: list[Node] = []
        self._inputs: list[list[Value]] = []
        self._outputs: list[list[Tensor]] = []
        self._placed: dict[str, tuple[Tensor, str]] = {}
        self._created: dict[str, Value] = {}
        self._gradients: dict[str, Value] = {}
        self._wanted: list[int] = []
        sharding = Sharding(max(1, kind.setting.servers), kind.sharding)
        sharding.place(COUNTER_BYTES)  # TensorFlow creates the counter of steps first
        for name, tensor in variables:
            server = sharding.place(tensor.bytes or 0)
            self._placed[name] = tensor, server_device(server) if kind.setting.servers else self._worker

    def op(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Tensor],
        *,
        name: str | None = None,
        device: str | None = None,
        flops: float | None = None,
    ) -> int:
        """Adds an op and returns its number.

        Args:
            op: its type.
            inputs: what it takes. An input that is None is not part of the graph.
            outputs: what it gives.
            name: unique in the graph.
            device: by default the worker's.
            flops: by default those of contracts/op_flops.py.
        """
        taken = [one for one in inputs if one is not None]
        sizes = [one.bytes for one in outputs]
        known = [size for size in sizes if size is not None]
        counted = flops
        if counted is None:
            counted = op_flops(op, [self.tensor(one).shape for one in taken], [one.shape for one in outputs])
        number = len(self._nodes)
        self._nodes.append(
            Node(
                name=name or f"{op}_{number}",
                op=op,
                device=device or self._worker,
                shapes=[None if one.shape is None else list(one.shape) for one in outputs],
                dtypes=[one.dtype for one in outputs],
                output_bytes=sum(known) if len(known) == len(sizes) else None,
                flops=None if math.isnan(counted) else round(counted),
            )
        )
        self._inputs.append(taken)
        self._outputs.append(list(outputs))
        return number

    def tensor(self, value: Value) -> Tensor:
        """Shape and dtype of a tensor."""
        return self._outputs[value[0]][value[1]]

    def variable(self, name: str) -> Value:
        """A variable; its op is created when it is first used."""
        if name not in self._created:
            tensor, device = self._placed[name]
            self._created[name] = self.op("VariableV2", [], [tensor], name=name, device=device), 0
        return self._created[name]

    def gradient(self, name: str, value: Value) -> None:
        """Takes the gradient of a variable when it is complete."""
        if self._kind.reduces:
            tensor = replace(self.tensor(value), shape=self._placed[name][0].shape)
            value = self.op(REDUCE, [value], [tensor], name=f"{name}/all_reduce"), 0
        self._gradients[name] = value

    def average(self, name: str, value: Value) -> None:
        """Writes a tensor into a variable that no optimiser updates, such as a moving average."""
        tensor, device = self._placed[name]
        inputs = [self.variable(name), value]
        self.want(self.op("AssignSub", inputs, [tensor], name=f"{name}/assign", device=device))

    def want(self, op: int) -> None:
        """Keeps an op, with all that it needs. What nothing needs is left out of the graph."""
        self._wanted.append(op)

    def update(self) -> None:
        """Applies all gradients."""
        for name, gradient in self._gradients.items():
            tensor, device = self._placed[name]
            slots = [
                (self.op("VariableV2", [], [tensor], name=f"{name}/slot_{number}", device=device), 0)
                for number in range(SLOTS[self._kind.optimiser])
            ]
            inputs = [self.variable(name), *slots, gradient]
            apply = UPDATES[self._kind.optimiser]
            self.want(self.op(apply, inputs, [tensor], name=f"{name}/update", device=device))

    def graph(self, source: str, framework: str, version: str, workload: str) -> Graph:
        """The graph of all ops that are wanted, and of those that they need."""
        kept = self._needed()
        number = {old: new for new, old in enumerate(kept)}
        edges = [Edge(number[src], number[dst], DATA, output) for dst in kept for src, output in self._inputs[dst]]
        return Graph(
            source=source,
            setting=str(self._kind.setting),
            task=self._kind.task,
            workload=workload,
            tensorflow=None,
            framework=framework,
            framework_version=version,
            nodes=[self._nodes[one] for one in kept],
            edges=edges,
        )

    def _needed(self) -> list[int]:
        found: set[int] = set()
        waiting = list(self._wanted)
        while waiting:
            op = waiting.pop()
            if op not in found:
                found.add(op)
                waiting += [source for source, _ in self._inputs[op]]
        return sorted(found)
