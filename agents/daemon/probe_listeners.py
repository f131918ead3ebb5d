"""Receiving ends of network probes, each in a forked process until its result is requested."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, Optional, Tuple

from driple.agents.daemon.forked_call import ForkedCalls, Outcome
from driple.contracts.errors import BadInput, shown

Done = Callable[[Outcome], None]


@dataclass
class _Probe:
    until: int  # closing it tells the process to end
    outcome: Optional[Outcome] = None
    done: Optional[Done] = None


class ProbeListeners:
    """All probes, by token."""

    def __init__(self, calls: ForkedCalls) -> None:
        self._calls = calls
        self._probes: Dict[str, _Probe] = {}

    def listen(self, tcp: socket.socket, udp: socket.socket) -> Tuple[str, int]:
        """Starts to receive on these sockets and takes ownership of them. Returns a token and the port."""
        from driple.agents.hostinfo.link_probe import LISTEN_S, hear

        token = os.urandom(16).hex()
        wait, until = os.pipe2(os.O_CLOEXEC)
        with tcp, udp:
            port = int(tcp.getsockname()[1])
            keep = (tcp.fileno(), udp.fileno(), wait)
            try:
                self._calls.run(partial(hear, tcp, udp, wait), LISTEN_S, partial(self._over, token), keep)
            except BaseException:
                os.close(until)
                raise
            finally:
                os.close(wait)
        self._probes[token] = _Probe(until)
        return token, port

    def heard(self, token: str, done: Done) -> None:
        """Calls `done` with the result. The token is then invalid. Raises BadInput if there is no such probe."""
        probe = self._probes.get(token)
        if probe is None or probe.done is not None:
            raise BadInput(f"{shown(token)}: no such probe, or its result was already requested")
        probe.done = done
        if probe.outcome is not None:
            self._tell(token, probe)
        else:
            self._hang_up(probe)

    def _over(self, token: str, outcome: Outcome) -> None:
        probe = self._probes[token]
        probe.outcome = outcome
        self._hang_up(probe)
        if probe.done is not None:
            self._tell(token, probe)

    def _tell(self, token: str, probe: _Probe) -> None:
        del self._probes[token]
        assert probe.done is not None and probe.outcome is not None
        probe.done(probe.outcome)

    def _hang_up(self, probe: _Probe) -> None:
        if probe.until >= 0:
            os.close(probe.until)
            probe.until = -1
