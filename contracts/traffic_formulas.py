"""Bytes that each task sends and receives in a training step, by the formula of its strategy.

M is the number of bytes of the gradients, n the number of workers. These are bytes of payload; on the wire each packet
also has headers (`WIRE_FACTOR`).

    ring, clique       2 (n - 1) / n M for each worker, both ways
    star               (n - 1) M for the root, M for every other worker, both ways
    parameter servers  M for each worker, both ways; the servers share what all workers send and receive
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple

from driple.contracts.strategy import SERVER, WORKER

WIRE_FACTOR = 1 + 66 / 1448
"""Bytes on the wire for a byte of payload, with full-size packets: Ethernet, IP and TCP headers with time stamps."""


class StepBytes(NamedTuple):
    """Payload of a task in a step."""

    sent: float
    received: float


def _even(share: float, workers: int) -> Dict[str, StepBytes]:
    return {f"{WORKER}:{i}": StepBytes(share, share) for i in range(workers)}


def ring(gradient_bytes: float, workers: int, servers: int) -> Dict[str, StepBytes]:
    """Each worker passes every part of the gradients on in both rounds, except its own in each."""
    return _even(2 * (workers - 1) / workers * gradient_bytes, workers)


def star(gradient_bytes: float, workers: int, servers: int) -> Dict[str, StepBytes]:
    """All send to the first worker, which sends the sum back."""
    found = _even(gradient_bytes if workers > 1 else 0.0, workers)
    root = (workers - 1) * gradient_bytes
    return {**found, f"{WORKER}:0": StepBytes(root, root)}


def parameter_servers(gradient_bytes: float, workers: int, servers: int) -> Dict[str, StepBytes]:
    """Workers pull all variables and push all gradients. A server's part depends on its variables: here an even one."""
    share = workers * gradient_bytes / max(1, servers)
    return {**_even(gradient_bytes, workers), **{f"{SERVER}:{i}": StepBytes(share, share) for i in range(servers)}}


FORMULAS: Dict[str, Callable[[float, int, int], Dict[str, StepBytes]]] = {
    "ring": ring,
    "clique": ring,
    "star": star,
    "ps": parameter_servers,
}
"""By topology. Strategies without one have their own name here."""

_OF_STRATEGY: Dict[str, str] = {"ps": "ps", "allreduce": "ring"}


def topology_of(strategy: str) -> str:
    """The topology of a strategy that has only one."""
    return _OF_STRATEGY.get(strategy, strategy)


def step_bytes(topology: str, gradient_bytes: float, workers: int, servers: int = 0) -> Dict[str, StepBytes]:
    """Payload of each task in a step; empty for a topology without a formula."""
    formula = FORMULAS.get(topology)
    return {} if formula is None or workers < 1 else formula(gradient_bytes, workers, servers)
