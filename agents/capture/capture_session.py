"""One capture of packet headers: from the sockets to a file that `seal_packets` makes Parquet of."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import List, NamedTuple, Optional

from driple.agents.capture.packet_ring import LAYOUTS, PacketRing, open_packet_socket
from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.samples_file import Stream
from driple.agents.sampler.samples_writer import DiskFull, SampleWriter
from driple.agents.sampler.stop_control import Control, say
from driple.agents.sampler.ticker import SECOND_NS, own_usage, real_at
from driple.contracts.errors import BadInput
from driple.contracts.protocol.capture_lines import PACKET_SOCKETS, READY, CaptureSummary
from driple.contracts.protocol.message import encode

CLOCK = Stream("clock", (Field("t_mono_ns", "int64", True), Field("t_real_ns", "int64", True)))
"""Pairs of both clocks, about one a second: the kernel stamps frames with the wall clock."""
STREAMS = (
    *(Stream(each.name, tuple(Field(name, "uint32", True) for name, _ in each.words)) for each in LAYOUTS),
    CLOCK,
)

# Seldom, as each look costs as much as many frames. A full ring holds half a second of 1 Gbit/s in small pieces.
_PAUSE_S = 0.02
_KEEP_FREE = 64 << 20  # bytes: the run that is measured needs the disk too
_ANSWER_S = 10.0
_PATIENCE_S = 5.0


class CaptureSpec(NamedTuple):
    """What to capture."""

    out: Path
    """The Parquet file to be made later; the capture is beside it."""
    interface: str
    host: str
    limit_s: float
    keeper: str = ""
    """Unix socket of a process that passes packet sockets on; empty to open them here."""


def capture(spec: CaptureSpec) -> CaptureSummary:
    """Captures until stdin closes, `stop` or a signal. Raises BadInput if it cannot begin; nothing is left then."""
    begin = time.monotonic_ns()  # before any frame can arrive
    with ExitStack() as stack:
        rings = _open(spec, stack)
        control = stack.enter_context(Control(limit_s=spec.limit_s, watch_stdin=True))
        about = {"host": spec.host, "interface": spec.interface}
        writer = SampleWriter(spec.out, STREAMS, about)
        stack.callback(writer.close)
        say(READY)
        return _Capture(rings, writer, control).run(begin)


def check(spec: CaptureSpec) -> None:
    """Raises BadInput, with the remedy, if the interface cannot be captured. Records nothing."""
    with ExitStack() as stack:
        _open(spec, stack)


def _open(spec: CaptureSpec, stack: ExitStack) -> List[PacketRing]:
    lines = _passed(spec) if spec.keeper else [open_packet_socket() for _ in LAYOUTS]
    for line in lines:
        stack.callback(line.close)
    rings = []
    for line, layout in zip(lines, LAYOUTS):
        rings.append(PacketRing(line, spec.interface, layout))
        stack.callback(rings[-1].close)
    return rings


def _passed(spec: CaptureSpec) -> List[socket.socket]:
    """Packet sockets that another process has opened in our network namespace. A lab of a plain user does."""
    folder = os.open(Path(spec.keeper).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_ANSWER_S)
            # The real path may exceed the 108 bytes of a socket address.
            line.connect(f"/proc/self/fd/{folder}/{Path(spec.keeper).name}")
            line.sendall(json.dumps({"do": PACKET_SOCKETS, "host": spec.host}).encode() + b"\n")
            _, found, _, _ = line.recvmsg(4096, socket.CMSG_SPACE(4 * len(LAYOUTS)), socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise BadInput(f"capture: {spec.keeper} passes no packet sockets ({error.strerror or error})") from None
    finally:
        os.close(folder)
    size = 4 * len(LAYOUTS)
    data = b"".join(bytes(item[:size]) for _, kind, item in found if kind == socket.SCM_RIGHTS)
    if len(data) < size:
        raise BadInput(f"capture: {spec.keeper} passed no packet sockets")
    return [socket.socket(fileno=int.from_bytes(data[i : i + 4], "little")) for i in range(0, size, 4)]


class _Capture:
    def __init__(self, rings: List[PacketRing], writer: SampleWriter, control: Control) -> None:
        self._rings = rings
        self._writer = writer
        self._control = control
        self._frames = 0
        self._early: Optional[str] = None
        self._folder = str(writer.path.parent)

    def run(self, begin: int) -> CaptureSummary:
        cpu, _ = own_usage()
        try:
            self._loop()
        except DiskFull as error:
            self._early = str(error)
        end = time.monotonic_ns()
        for ring in self._rings:
            ring.stop()
        seconds = (end - begin) / SECOND_NS
        after, _ = own_usage()
        summary = CaptureSummary(
            frames=self._frames,
            dropped=sum(ring.count_dropped() for ring in self._rings),
            stopped_early=self._early,
            seconds=round(seconds, 3),
            cpu_share_pct=round(100 * (after - cpu) / seconds, 3) if seconds > 0 else 0.0,
        )
        self._finish(summary, begin, end)
        return summary

    def _loop(self) -> None:
        control, next_second = self._control, 0
        while True:
            now = time.monotonic_ns()
            over = control.wait(_PAUSE_S) or control.look(now)
            if now >= next_second:
                self._writer.add(len(self._rings), [[now], [real_at(now)]])
                next_second = now + SECOND_NS
                if _free_bytes(self._folder) < _KEEP_FREE:
                    self._early = f"less than {_KEEP_FREE >> 20} MB are free in {self._folder}"
                    return
            self._take()
            self._writer.flush()
            if over:
                if control.told not in ("controller", "controller gone"):
                    self._early = control.told
                return

    def _take(self) -> None:
        for number, ring in enumerate(self._rings):
            block = ring.take()
            while block is not None:
                count, columns = block
                self._writer.add_raw(number, count, columns)
                self._frames += count
                block = ring.take() if ring.wrapped else None

    def _finish(self, summary: CaptureSummary, begin: int, end: int) -> None:
        """The rest of the rings and the note. A full disk keeps what was written before."""
        note = {**vars(summary), "first_mono_ns": begin, "last_mono_ns": end}
        try:
            self._take()
            self._writer.add(len(self._rings), [[end], [real_at(end)]])
            note["frames"] = summary.frames = self._frames
            self._writer.note(note)
            self._writer.flush()
        except DiskFull as error:
            summary.stopped_early = summary.stopped_early or str(error)


def tell(summary: CaptureSummary) -> None:
    """Sends the summary to the controller."""
    say(encode(summary), _PATIENCE_S)


def _free_bytes(folder: str) -> int:
    """Room that is left on the disk of a folder."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize
