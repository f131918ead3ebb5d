"""Links whose hosts send with a delay on a kernel without netem: the bridge has a TAP device in place of each port."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from driple.orchestrator.lab import tools
from driple.orchestrator.lab.bridges import BRIDGES
from driple.orchestrator.lab.delay_relay import open_port, open_tap
from driple.orchestrator.lab.layout import port_name
from driple.orchestrator.lab.tools import Batch, ToolError

_END_S = 5.0
_QUEUE_PACKETS = 20_000
"""Between the bridge and the relay. The usual 1000 overflow when the relay waits 10 ms for a processor."""


class DelayLinks:
    """The relay of all data links, if there is one."""

    def __init__(self) -> None:
        self._relay: subprocess.Popen[bytes] | None = None
        self._until = -1
        self._numbers: tuple[int, ...] = ()

    def device(self, number: int) -> str:
        """The bridge's device of a host: what the host sends arrives there, after its delay."""
        return _tap_name(number) if number in self._numbers else port_name(number, "data")

    def start(self, delay_ms: float, numbers: Sequence[int]) -> None:
        """Delays what these hosts send. Raises ToolError if the machine has no TAP devices; then nothing is changed."""
        self.stop()
        with ExitStack() as ends:
            descriptors = []
            for number in numbers:
                try:
                    port = ends.enter_context(open_port(port_name(number, "data")))
                    tap = open_tap(_tap_name(number))
                except OSError as error:
                    raise ToolError(
                        f"a delay of {delay_ms:g} ms needs netem or /dev/net/tun, and this machine has neither "
                        f"({error.strerror})"
                    ) from None
                ends.callback(os.close, tap)
                descriptors += [port.fileno(), tap]
            tools.run(Batch("ip", [line for number in numbers for line in _lines(number)]))
            reader, writer = os.pipe2(os.O_CLOEXEC)
            ends.callback(os.close, reader)
            words = [sys.executable, "-m", __name__.replace("delay_links", "delay_relay"), f"{delay_ms / 1000:.6f}"]
            self._relay = subprocess.Popen(
                [*words, str(reader), *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[reader, *descriptors],
            )
        self._until, self._numbers = writer, tuple(numbers)

    def stop(self) -> None:
        """Restores the links; safe to call twice."""
        if self._relay is None:
            return
        os.close(self._until)
        try:
            self._relay.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._relay.kill()
            self._relay.wait()
        self._relay, numbers, self._numbers = None, self._numbers, ()
        for number in numbers:
            with suppress(ToolError):  # a host that was ended has no port
                tools.run(Batch("ip", [f"link set {port_name(number, 'data')} master {BRIDGES['data']}"]))


def _tap_name(number: int) -> str:
    return f"delay-lab{number}"


def _lines(number: int) -> list[str]:
    return [
        f"link set {port_name(number, 'data')} nomaster",
        f"link set {_tap_name(number)} txqueuelen {_QUEUE_PACKETS} master {BRIDGES['data']} up",
    ]
