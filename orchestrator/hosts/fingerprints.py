"""Fingerprints of the machines behind the hosts of a sweep: one for each machine, taken before its first task.

Hosts of a lab and hosts in containers share a machine. It is measured once, never by two of them at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from driple.contracts.errors import DripleError
from driple.contracts.fingerprint import Fingerprint, read_fingerprint
from driple.contracts.machine_identity import LOADED_PCT
from driple.contracts.protocol import requests
from driple.orchestrator.hosts.agent_client import AgentClient

log = logging.getLogger(__name__)

AGAIN = 2  # times that a fingerprint is taken again if its repeats vary too much
MANY = 16  # machines that are measured in parallel
ANSWER_S = 30.0  # more than the agent's own limit: a slow machine is not a lost one

_Machine = tuple[str, int]  # boot id and usable cores: containers of one machine may differ in their cores


class Fingerprints:
    """Those of a sweep. A machine that could not be measured has None, and is not asked again."""

    def __init__(self) -> None:
        self._taken: dict[_Machine, Fingerprint | None] = {}
        self._by_boot: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def take(self, clients: Iterable[AgentClient]) -> None:
        """Sets `fingerprint` of each client. Measures machines that have none yet. Never raises for a host."""
        by_boot: dict[str, list[AgentClient]] = {}
        for client in clients:
            if client.fingerprint is None:
                by_boot.setdefault(client.facts.boot_id, []).append(client)
        if by_boot:
            with ThreadPoolExecutor(max_workers=min(MANY, len(by_boot))) as pool:
                list(pool.map(self._take_one_by_one, by_boot.values()))

    def _take_one_by_one(self, clients: list[AgentClient]) -> None:
        boot_id = clients[0].facts.boot_id
        with self._lock:
            alone = self._by_boot.setdefault(boot_id, threading.Lock())
        with alone:
            for client in clients:
                machine = boot_id, client.facts.cores
                if machine not in self._taken:
                    self._taken[machine] = _measured(client)
                client.fingerprint = self._taken[machine]


def _taken(client: AgentClient) -> Fingerprint:
    return read_fingerprint(client.ask(requests.TakeFingerprint(), timeout_s=ANSWER_S).fingerprint)


def _measured(client: AgentClient) -> Fingerprint | None:
    """The first that is steady, or the steadiest: other work may have run on the machine for a second."""
    try:
        best = _taken(client)
        for _ in range(AGAIN):
            if best.compared_spread_pct <= LOADED_PCT:
                break
            best = min(best, _taken(client), key=lambda one: one.compared_spread_pct)
        return best
    except DripleError as error:  # a lost host too: the run notices by itself
        log.warning("%s: no fingerprint of its machine: %s", client.name, error)
        return None
