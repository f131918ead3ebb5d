"""StepTraffic: who sends how many bytes to whom in a training step, by the formula of the strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput
from driple.contracts.strategy import STRATEGIES
from driple.contracts.traffic_formulas import (
    RING_STEPS,
    WIRE_FACTOR,
    Traffic,
    all_reduce_traffic,
    pair_traffic,
    received,
    sent,
    server_traffic,
    worker_machines,
)
from driple.inspector.predict.number_format import NONE, quantity
from driple.inspector.predict.request import PredictionQuery, steps_of
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.simulation import check_servers, default_placement

if TYPE_CHECKING:
    from driple.inspector.predict.prediction import Prediction

MOST_TASKS = 8
"""With more tasks than this the text has no matrix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTraffic:
    """Payload of a step between the tasks of a job. On the wire there are headers too."""

    topology: str
    """Of an all-reduce, else the strategy."""
    tasks: tuple[str, ...]
    pairs: Mapping[tuple[str, str], float]
    """Bytes by sending and receiving task, by formula; without pairs that exchange nothing."""
    simulated: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """As simulated; empty if the prediction is not simulated."""

    @property
    def bytes(self) -> float:
        """Of all tasks together."""
        return sum(self.pairs.values())

    @property
    def wire_bytes(self) -> float:
        """The same with headers, in full-size packets."""
        return self.bytes * WIRE_FACTOR

    @property
    def flows(self) -> int:
        """Directed pairs of tasks that exchange tensors: each is a TCP flow. Acknowledgements are not counted."""
        return len(self.pairs)

    def sent(self, task: str) -> float:
        return sent(dict(self.pairs), task)

    def received(self, task: str) -> float:
        return received(dict(self.pairs), task)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `simulated` is null without a simulation."""
        simulated = {**_totals(self.simulated)} if self.simulated else None
        by_task = {task: {"sent_bytes": self.sent(task), "received_bytes": self.received(task)} for task in self.tasks}
        return {
            "topology": self.topology,
            **_totals(self.pairs),
            "wire_bytes": self.wire_bytes,
            "tasks": by_task,
            "simulated": simulated,
        }

    def lines(self) -> list[str]:
        """For the text of a prediction: totals, and the matrix of a small job."""
        what = "a job of one task" if len(self.tasks) == 1 else self.topology.replace("_", " ")
        line = f"traffic       {_amount(self.pairs)} in a step, payload by formula ({what})"
        found = [line + (f"; {_amount(self.simulated)} simulated" if self.simulated else "")]
        if self.pairs and len(self.tasks) <= MOST_TASKS:
            rows = [["from \\ to", *self.tasks, "sent"]]
            for source in self.tasks:
                moved = [self.pairs.get((source, target)) for target in self.tasks]
                cells = [NONE if size is None else quantity(size, "B") for size in moved]
                rows.append([source, *cells, quantity(self.sent(source), "B")])
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for head, *cells in rows:
                shown = "   ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
                found.append(f"{'':<13} {head:<{widths[0]}}   {shown}")
        return found


def traffic_of(query: PredictionQuery, step: TrainingStep, simulated: Traffic | None = None) -> StepTraffic:
    """The traffic of the job of a query, from the training step of its worker.

    Variables are on the servers on which the graph has them. Without servers every gradient is reduced.

    Raises:
        BadInput: the graph is of a job with other servers.
    """
    setting, workload, strategy = query.setting, query.known, query.strategy
    topology = query.topology or workload.topology
    if STRATEGIES[strategy].has_servers:
        check_servers(step, setting)
        pairs = server_traffic(*step.server_bytes(setting.servers), setting.workers)
    else:
        size = sum(one.bytes for one in step.reduced or step.pulls)
        machines = worker_machines(default_placement(setting), setting.workers)
        if STRATEGIES[strategy].has_topology:
            pairs = all_reduce_traffic(topology, machines, size, RING_STEPS[query.backend or workload.backend])
        else:
            pairs = pair_traffic(setting.workers, size)
    return StepTraffic(
        topology=topology if STRATEGIES[strategy].has_topology else strategy,
        tasks=setting.tasks,
        pairs={pair: size for pair, size in pairs.items() if size},
        simulated=simulated or {},
    )


def with_traffic(answers: Sequence[Prediction], say: Callable[[str], None] | None = None) -> list[Prediction]:
    """Predictions with their traffic, where the graph tells it. Arguments as of `request.steps_of`."""
    return [replace(one, traffic=_traffic_or_none(one.query, say)) for one in answers]


def _traffic_or_none(query: PredictionQuery, say: Callable[[str], None] | None) -> StepTraffic | None:
    with suppress(BadInput):  # a graph of other servers, without shapes, or of one named device
        (step,) = steps_of([query], say=say)
        if step.pulls or step.reduced or query.setting.workers == 1:
            return traffic_of(query, step)
    return None


def _totals(pairs: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    return {
        "bytes": sum(pairs.values()),
        "flows": len(pairs),
        "pairs": [[source, target, size] for (source, target), size in pairs.items()],
    }


def _amount(pairs: Mapping[tuple[str, str], float]) -> str:
    return f"{quantity(sum(pairs.values()), 'B')} in {len(pairs)} flow{'' if len(pairs) == 1 else 's'}"
