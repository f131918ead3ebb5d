"""Lines between the controller and a packet capture on a host.

capture      ready        every frame from here on is recorded
controller   stop         end the capture
capture      {...}        a CaptureSummary, the last line

The supervisor of a lab passes packet sockets to hosts whose user may not open them: on its Unix socket, the line
{"do": "packet_sockets", "host": "lab1"} is answered by {"ok": null} with the descriptors of two sockets.
"""

from __future__ import annotations

from typing import Optional

from driple.contracts.protocol.message import Message
from driple.contracts.protocol.sampler_lines import READY as READY
from driple.contracts.protocol.sampler_lines import STOP as STOP

PACKET_SOCKETS = "packet_sockets"


class CaptureSummary(Message):
    """How a capture went."""

    frames: int
    dropped: int
    """Frames that the kernel could not store because the capture was too slow."""
    stopped_early: Optional[str]
    """Why it ended before it was told to; None if it did not."""
    seconds: float
    cpu_share_pct: float
    """Of a core."""
