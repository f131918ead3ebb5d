"""Payload that the tasks of a job send to each other in a training step, by strategy and topology.

M is the size of the gradients, which is that of the trainable weights; n is the number of workers. A worker sends

    ring, clique        2 (n - 1) / n M
    star                (n - 1) M at the root, M elsewhere
    tree, binary tree   M for its parent and M for each child
    pair averaging      M on average: each worker takes the model of one other
    parameter servers   M, and each server sends its share to every worker

These are bytes of payload. On the wire each packet also has headers (`WIRE_FACTOR`).

Each chunk of a gradient goes up a tree, where the parents add, and down again. A clique has a star round each worker,
and each star takes an equal share of the chunks.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from driple.contracts.run_spec import RunSpec
from driple.contracts.sharding import Sharding
from driple.contracts.strategy import (
    BINARY_TREE_STAR,
    CLIQUE,
    GLOO,
    GRPC,
    HOROVOD_GLOO,
    HOROVOD_MPI,
    MPI,
    NCCL,
    RING,
    SERVER,
    STAR,
    TREE,
    WORKER,
)

Tree = Tuple[int, ...]
"""The parent of each worker."""
ROOT = -1
"""The parent of the root."""
Traffic = Dict[Tuple[str, str], float]
"""Bytes by sending and receiving task."""
WIRE_FACTOR = 1 + 66 / 1448
"""Bytes on the wire for a byte of payload, with full-size packets: Ethernet, IP and TCP headers with time stamps."""


class StepBytes(NamedTuple):
    """Payload of a task in a step."""

    sent: float
    received: float


RING_STEPS = {GRPC: 1, GLOO: -1, MPI: 1, NCCL: 1, HOROVOD_GLOO: -1, HOROVOD_MPI: 1}
"""By backend: from a worker to the one that it sends to. All but that of NCCL were seen on the lab."""
COUNTER_BYTES = 8
"""Of the counter of steps, the first variable that parameter servers get."""


def machines_of(run: RunSpec) -> Tuple[int, ...]:
    """The number of the machine of each worker."""
    return worker_machines(run.together, run.setting.workers)


def worker_machines(together: Sequence[Sequence[str]], workers: int) -> Tuple[int, ...]:
    """The number of the machine of each worker, from groups of tasks that share a machine."""
    of_task = {task: number for number, group in enumerate(together) for task in group}
    return tuple(of_task[f"{WORKER}:{worker}"] for worker in range(workers))


def trees(topology: str, machines: Sequence[int]) -> Tuple[Tree, ...]:
    """The trees of a topology, for workers on these machines. A ring has none."""
    return _TREES[topology](machines)


def step_traffic(run: RunSpec, variable_bytes: Sequence[int]) -> Traffic:
    """Mean payload of a step between each pair of tasks that communicate.

    Args:
        run: strategy, topology, placement and numbers of tasks.
        variable_bytes: sizes of the trainable variables, in the order of their creation.
    """
    return {pair: size for pair, size in _TRAFFIC[run.workload.strategy](run, variable_bytes).items() if size}


def sent(traffic: Traffic, task: str) -> float:
    """Bytes that a task sends."""
    return sum(size for (source, _), size in traffic.items() if source == task)


def received(traffic: Traffic, task: str) -> float:
    """Bytes that a task receives."""
    return sum(size for (_, target), size in traffic.items() if target == task)


def _star(workers: int, root: int) -> Tree:
    return tuple(ROOT if worker == root else root for worker in range(workers))


def _binary(workers: int) -> Tree:
    return tuple((worker - 1) // 2 if worker else ROOT for worker in range(workers))


def _below_masters(machines: Sequence[int], masters_tree: Callable[[int], Tree]) -> Tuple[Tree, ...]:
    """A tree of the first workers of the machines. The others of a machine are children of its first worker."""
    master: Dict[int, int] = {}
    for worker, machine in enumerate(machines):
        master.setdefault(machine, worker)
    masters = list(master.values())
    parents: List[int] = [master[machine] for machine in machines]
    for number, parent in enumerate(masters_tree(len(masters))):
        parents[masters[number]] = ROOT if parent == ROOT else masters[parent]
    return (tuple(parents),)


_TREES: Dict[str, Callable[[Sequence[int]], Tuple[Tree, ...]]] = {
    RING: lambda machines: (),
    STAR: lambda machines: (_star(len(machines), 0),),
    TREE: lambda machines: _below_masters(machines, lambda masters: _star(masters, 0)),
    BINARY_TREE_STAR: lambda machines: _below_masters(machines, _binary),
    CLIQUE: lambda machines: tuple(_star(len(machines), root) for root in range(len(machines))),
}


def _worker(number: int) -> str:
    return f"{WORKER}:{number}"


def all_reduce_traffic(topology: str, machines: Sequence[int], size: float, ring_step: int = 1) -> Traffic:
    """Payload of an all-reduce of `size` bytes, for workers on these machines. `ring_step` is one of RING_STEPS."""
    if topology == RING:
        return _ring(len(machines), size, ring_step)
    return _forest(trees(topology, machines), size)


def _all_reduce(run: RunSpec, variable_bytes: Sequence[int]) -> Traffic:
    size, step = float(sum(variable_bytes)), RING_STEPS[run.workload.backend]
    return all_reduce_traffic(run.workload.topology, machines_of(run), size, step)


def _ring(workers: int, size: float, step: int) -> Traffic:
    share = 2 * (workers - 1) / workers * size
    return {(_worker(each), _worker((each + step) % workers)): share for each in range(workers) if workers > 1}


def _forest(forest: Sequence[Tree], size: float) -> Traffic:
    traffic: Traffic = {}
    for tree in forest:
        for worker, parent in enumerate(tree):
            if parent != ROOT:
                for pair in ((_worker(worker), _worker(parent)), (_worker(parent), _worker(worker))):
                    traffic[pair] = traffic.get(pair, 0.0) + size / len(forest)
    return traffic


def _pair_averaging(run: RunSpec, variable_bytes: Sequence[int]) -> Traffic:
    return pair_traffic(run.setting.workers, float(sum(variable_bytes)))


def pair_traffic(count: int, size: float) -> Traffic:
    """Mean payload of pair averaging of a model of `size` bytes."""
    workers = range(count)
    share = size / max(1, count - 1)
    return {(_worker(one), _worker(other)): share for one in workers for other in workers if one != other}


def _parameter_servers(run: RunSpec, variable_bytes: Sequence[int]) -> Traffic:
    shard = Sharding(run.setting.servers, run.workload.sharding)
    shard.place(COUNTER_BYTES)
    held = [0.0] * run.setting.servers
    for size in variable_bytes:
        held[shard.place(size)] += size
    return server_traffic(held, held, run.setting.workers)


def server_traffic(pulled: Sequence[float], pushed: Sequence[float], workers: int) -> Traffic:
    """Payload of parameter servers. A worker takes `pulled` from each server, and sends it `pushed`."""
    traffic: Traffic = {}
    for server, (down, up) in enumerate(zip(pulled, pushed)):
        for worker in range(workers):
            traffic[f"{SERVER}:{server}", _worker(worker)] = down
            traffic[_worker(worker), f"{SERVER}:{server}"] = up
    return traffic


_TRAFFIC: Dict[str, Callable[[RunSpec, Sequence[int]], Traffic]] = {
    "ps": _parameter_servers,
    "allreduce": _all_reduce,
    "pair_averaging": _pair_averaging,
}


def step_bytes(topology: str, gradient_bytes: float, workers: int, servers: int = 0) -> Dict[str, StepBytes]:
    """Payload of each task in a step of a job of which only sums are known, with one task on each machine.

    `topology` is that of an all-reduce, else the strategy. Servers share evenly. Empty without a formula.
    """
    if topology == "ps":
        share = workers * gradient_bytes / max(1, servers)
        found = {_worker(worker): StepBytes(gradient_bytes, gradient_bytes) for worker in range(workers)}
        return {**found, **{f"{SERVER}:{server}": StepBytes(share, share) for server in range(servers)}}
    if topology == "pair_averaging":
        traffic = pair_traffic(workers, gradient_bytes)
    elif topology in _TREES:
        traffic = all_reduce_traffic(topology, range(workers), gradient_bytes)
    else:
        return {}
    tasks = map(_worker, range(workers))
    return {task: StepBytes(sent(traffic, task), received(traffic, task)) for task in tasks}
