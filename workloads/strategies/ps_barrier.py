"""Barriers of a parameter-server job: shared queues on the servers.

They use blocking dequeues. TensorFlow's session manager polls for initialised variables instead, and sleeps up to 30 s
between polls. None of these ops is an ancestor of the training op, so none is part of the extracted graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driple.workloads.runtime.cluster import server_device


def _queue(name: str) -> Any:
    import tensorflow.compat.v1 as v1

    return v1.FIFOQueue(-1, v1.int32, shapes=(), name=name, shared_name=f"driple_{name}")


@dataclass(frozen=True)
class Start:
    """No worker steps before all are ready. On server 0."""

    let_in: Any
    """Run by worker 0 once the variables are initialised."""
    enter: Any
    """Run by every worker: waits for `let_in`."""
    arrive: Any
    """Run by every worker once it is ready to step."""
    let_go: Any
    """Run by worker 0: waits for all to arrive, then opens the barrier."""
    go: Any
    """Run by every worker: waits for `let_go`."""


def start_barrier(workers: int) -> Start:
    """Adds the barrier's ops to the default graph."""
    import tensorflow.compat.v1 as v1

    with v1.device(server_device(0)), v1.name_scope("start_barrier"):
        inside, arrived, started = (_queue(name) for name in ("inside", "arrived", "started"))
        tickets = v1.zeros([workers], v1.int32)
        with v1.control_dependencies([arrived.dequeue_many(workers)]):
            let_go = started.enqueue_many(tickets)
        return Start(
            let_in=inside.enqueue_many(tickets),
            enter=inside.dequeue(),
            arrive=arrived.enqueue(0),
            let_go=let_go,
            go=started.dequeue(),
        )


def say_done(worker: int, servers: int) -> Any:
    """The op with which a worker reports to every server that it is done."""
    import tensorflow.compat.v1 as v1

    tellings = []
    for server in range(servers):
        with v1.device(server_device(server)), v1.name_scope("done"):
            tellings.append(_queue("done").enqueue(worker))
    return v1.group(*tellings)


def hear_done(server: int) -> Any:
    """The op with which a server waits for the next worker to be done; returns its index."""
    import tensorflow.compat.v1 as v1

    with v1.device(server_device(server)):
        return _queue("done").dequeue()


@dataclass(frozen=True)
class Stop:
    """The step at which synchronous workers end, if the clock of worker 0 decides. On server 0."""

    at: Any
    """Read after a step: 0 while the step is not chosen."""
    choose: Any
    number: Any
    """Placeholder of `choose`."""
    init: Any


def agreed_stop(after: Any) -> Stop:
    """Adds the ops to the default graph; `after` is the op of a step.

    No worker can end a step that worker 0 has not begun, so all see the choice that worker 0 made before it began it.
    """
    import tensorflow.compat.v1 as v1

    with v1.device(server_device(0)), v1.name_scope("agreed_stop"):
        stop = v1.Variable(0, dtype=v1.int64, name="stop_at", trainable=False, collections=[], use_resource=False)
        number = v1.placeholder(v1.int64, shape=())
        choose = stop.assign(number)
        with v1.control_dependencies([after]):
            at = stop.read_value()
        return Stop(at=at, choose=choose, number=number, init=stop.initializer)
