"""The hosts of a sweep: connected when first needed, lent to one run at a time, set aside while they are down.

Processes may still run on an unreachable host. Its agent ends them after a while without heartbeats, and the next agent
ends what is left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from driple.contracts.errors import HostError, HostLost, HostRefused
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_client import AgentClient, Heartbeats
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.base import Host
from driple.orchestrator.hosts.fingerprints import Fingerprints

log = logging.getLogger(__name__)

ASIDE_S = 5.0  # first pause after a host was lost; doubles each time, up to a minute
MOST_ASIDE_S = 60.0
MANY = 16  # hosts that are connected in parallel


@dataclass
class _State:
    spec: HostSpec
    client: AgentClient | None = None
    lent: bool = False
    losses: int = 0
    lost_since: float | None = None
    aside_until: float = 0.0
    refused: str | None = None


class HostPool:
    """Every host of a sweep, by name."""

    def __init__(
        self, specs: Mapping[str, HostSpec], connect: Callable[[HostSpec], Host], agent: AgentFile, owner: str
    ) -> None:
        """`connect` creates a host, which the pool opens; `owner` is shown to others that find a host in use."""
        self._states = {name: _State(spec) for name, spec in specs.items()}
        self._connect = connect
        self._agent = agent
        self._owner = owner
        self._heartbeats = Heartbeats()
        self._fingerprints = Fingerprints()
        self._lock = threading.Lock()

    @property
    def specs(self) -> dict[str, HostSpec]:
        return {name: state.spec for name, state in self._states.items()}

    def free(self) -> tuple[HostSpec, ...]:
        now = time.monotonic()
        return self._specs_where(lambda state: not state.lent and state.aside_until <= now)

    def usable_later(self, patience_s: float) -> tuple[HostSpec, ...]:
        """Those that can be lent now or later: not refused, and not lost for more than `patience_s`."""
        now = time.monotonic()
        return self._specs_where(lambda state: state.lost_since is None or now - state.lost_since < patience_s)

    def _specs_where(self, usable: Callable[[_State], bool]) -> tuple[HostSpec, ...]:
        with self._lock:
            return tuple(state.spec for state in self._states.values() if state.refused is None and usable(state))

    def problems(self) -> list[str]:
        with self._lock:
            return [
                state.refused or f"{name}: lost for {time.monotonic() - (state.lost_since or 0):.0f} s"
                for name, state in self._states.items()
                if state.refused is not None or state.lost_since is not None
            ]

    def lend(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._states[name].lent = True

    def give_back(self, names: Iterable[str]) -> None:
        """Marks hosts as free; sets those aside that were lost meanwhile."""
        for name in names:
            state = self._states[name]
            if state.client is not None and state.client.lost is not None:
                self._set_aside(name, state.client.lost)
            with self._lock:
                state.lent = False

    def clients(self, names: Iterable[str]) -> dict[str, AgentClient]:
        """Opens the hosts that are lent to the caller. Raises the first HostError; sets all failed hosts aside."""
        wanted = list(dict.fromkeys(names))
        with ThreadPoolExecutor(max_workers=min(MANY, len(wanted))) as pool:
            failures = [failure for failure in pool.map(self._open, wanted) if failure is not None]
        if failures:
            raise failures[0]
        clients = {name: client for name in wanted if (client := self._states[name].client) is not None}
        self._fingerprints.take(clients.values())  # after all are open: starting an agent takes processor time
        return clients

    def open_clients(self) -> dict[str, AgentClient]:
        return {
            name: state.client
            for name, state in self._states.items()
            if state.client is not None and state.client.lost is None
        }

    def close(self, *, at_once: bool = False) -> None:
        """Ends every agent and what it started. Safe to call twice. `at_once` only disconnects, without waiting."""
        self._heartbeats.stop()
        clients = [state.client for state in self._states.values() if state.client is not None]
        if at_once:
            for client in clients:
                client.lose("given up")
        elif clients:
            with ThreadPoolExecutor(max_workers=min(MANY, len(clients))) as pool:
                list(pool.map(lambda client: client.close(), clients))

    def _open(self, name: str) -> HostError | None:
        state = self._states[name]
        if state.client is not None and state.client.lost is None:
            return None
        spec = state.spec
        client = AgentClient(
            self._connect(spec), self._agent, python=spec.agent_python, work_dir=spec.work_dir, owner=self._owner
        )
        try:
            client.open()
        except HostError as error:
            client.host.close()
            self._set_aside(name, error)
            return error
        self._heartbeats.add(client)
        with self._lock:
            state.client, state.losses, state.lost_since, state.aside_until = client, 0, None, 0.0
        return None

    def _set_aside(self, name: str, error: HostError) -> None:
        state = self._states[name]
        with self._lock:
            state.client = None
            if isinstance(error, HostRefused):
                state.refused = str(error)
            elif isinstance(error, HostLost):
                state.losses += 1
                pause = min(MOST_ASIDE_S, ASIDE_S * 2 ** (state.losses - 1))
                state.lost_since = state.lost_since or time.monotonic()
                state.aside_until = time.monotonic() + pause
                log.warning("%s; set aside for %g s", error, pause)
