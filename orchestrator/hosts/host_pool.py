"""The hosts of a sweep: connected when first needed, lent to one run at a time, set aside while they are down.

Unreachable is not dead: what was started there may still run. Its steward ends it when it hears nothing, and the next
one, when the host is back, ends what may be left before anything else is done there.
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
from driple.orchestrator.hosts.agent_client import Heart, Station
from driple.orchestrator.hosts.agent_file import Agent
from driple.orchestrator.hosts.base import Host

log = logging.getLogger(__name__)

ASIDE_S = 5.0
"""How long a host that was lost is left alone at first; twice as long each time, up to a minute."""
MOST_ASIDE_S = 60.0
MANY = 16
"""Hosts that are connected to at the same time: more wait for one another in this one process."""


@dataclass
class _State:
    spec: HostSpec
    station: Station | None = None
    lent: bool = False
    losses: int = 0
    lost_since: float | None = None
    aside_until: float = 0.0
    refused: str | None = None


class HostPool:
    """Every host of a sweep, by name."""

    def __init__(
        self, specs: Mapping[str, HostSpec], connect: Callable[[HostSpec], Host], agent: Agent, owner: str
    ) -> None:
        """Args:
        specs: by name.
        connect: makes a host, not yet open, of a spec.
        agent: what is brought to each.
        owner: who we are, for others who find a host in use.
        """
        self._states = {name: _State(spec) for name, spec in specs.items()}
        self._connect = connect
        self._agent = agent
        self._owner = owner
        self._heart = Heart()
        self._lock = threading.Lock()

    @property
    def specs(self) -> dict[str, HostSpec]:
        """All of them."""
        return {name: state.spec for name, state in self._states.items()}

    def free(self) -> tuple[HostSpec, ...]:
        """Those that can be lent now."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                state.spec
                for state in self._states.values()
                if not state.lent and state.refused is None and state.aside_until <= now
            )

    def usable_later(self, patience_s: float) -> tuple[HostSpec, ...]:
        """Those that can be lent now or later: not refused, and not lost for longer than `patience_s`."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                state.spec
                for state in self._states.values()
                if state.refused is None and (state.lost_since is None or now - state.lost_since < patience_s)
            )

    def problems(self) -> list[str]:
        """Why hosts are not there, a line each."""
        with self._lock:
            return [
                state.refused or f"{name}: lost for {time.monotonic() - (state.lost_since or 0):.0f} s"
                for name, state in self._states.items()
                if state.refused is not None or state.lost_since is not None
            ]

    def lend(self, names: Iterable[str]) -> None:
        """Marks hosts as used."""
        with self._lock:
            for name in names:
                self._states[name].lent = True

    def give_back(self, names: Iterable[str]) -> None:
        """Marks them as free; one whose station was lost meanwhile is set aside."""
        for name in names:
            state = self._states[name]
            if state.station is not None and state.station.lost is not None:
                self._set_aside(name, state.station.lost)
            with self._lock:
                state.lent = False

    def stations(self, names: Iterable[str]) -> dict[str, Station]:
        """The stations of hosts that are lent to the caller, opened where they are not.

        Raises:
            HostError: of the first that could not be; all that failed are set aside.
        """
        wanted = list(dict.fromkeys(names))
        with ThreadPoolExecutor(max_workers=min(MANY, len(wanted))) as pool:
            failures = [failure for failure in pool.map(self._open, wanted) if failure is not None]
        if failures:
            raise failures[0]
        return {name: station for name in wanted if (station := self._states[name].station) is not None}

    def open_stations(self) -> dict[str, Station]:
        """Those that are open now."""
        return {
            name: state.station
            for name, state in self._states.items()
            if state.station is not None and state.station.lost is None
        }

    def close(self, *, at_once: bool = False) -> None:
        """Ends every steward with all that it started. Safe to call twice.

        Args:
            at_once: only hangs up: they end by themselves, and nobody waits for it.
        """
        self._heart.stop()
        stations = [state.station for state in self._states.values() if state.station is not None]
        if at_once:
            for station in stations:
                station.lose("given up")
        elif stations:
            with ThreadPoolExecutor(max_workers=min(MANY, len(stations))) as pool:
                list(pool.map(lambda station: station.close(), stations))

    def _open(self, name: str) -> HostError | None:
        state = self._states[name]
        if state.station is not None and state.station.lost is None:
            return None
        spec = state.spec
        station = Station(
            self._connect(spec), self._agent, python=spec.agent_python, work_dir=spec.work_dir, owner=self._owner
        )
        try:
            station.open()
        except HostError as error:
            station.host.close()
            self._set_aside(name, error)
            return error
        self._heart.add(station)
        with self._lock:
            state.station, state.losses, state.lost_since, state.aside_until = station, 0, None, 0.0
        return None

    def _set_aside(self, name: str, error: HostError) -> None:
        state = self._states[name]
        with self._lock:
            state.station = None
            if isinstance(error, HostRefused):
                state.refused = str(error)
            elif isinstance(error, HostLost):
                state.losses += 1
                pause = min(MOST_ASIDE_S, ASIDE_S * 2 ** (state.losses - 1))
                state.lost_since = state.lost_since or time.monotonic()
                state.aside_until = time.monotonic() + pause
                log.warning("%s; set aside for %g s", error, pause)
