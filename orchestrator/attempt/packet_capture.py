"""Packet captures of an attempt: one process on each host, from before the first task until after the last."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

from driple.contracts.errors import BadInput
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.capture_lines import READY, STOP, CaptureSummary
from driple.orchestrator.attempt.failure import AttemptError, PermanentError, exit_text
from driple.orchestrator.attempt.monitor import Listener, try_ask
from driple.orchestrator.attempt.prepare import Request
from driple.orchestrator.hosts.agent_client import AgentClient

log = logging.getLogger(__name__)

READY_S = 20.0
MARGIN_S = 30.0  # over the limit of the run, which ends first
SEAL_S = 600.0
_REFUSED = 2  # exit code of a capture that has no permission, or no such interface


class HostCapture:
    """The capture on one host."""

    def __init__(self, client: AgentClient, folder: str) -> None:
        """`folder` is that of the attempt on the host."""
        self.client = client
        self.process = f"capture on {client.name} {folder.rpartition('.')[2]}"
        self.packets = f"{folder}/packets.parquet"
        self.samples = f"{self.packets}.samples"
        self.log = f"{folder}/capture.log"
        self.ready = False
        self.exit_code: int | None = None
        self.summary: CaptureSummary | None = None

    @property
    def over(self) -> bool:
        return self.exit_code is not None

    def take(self, event: events.ProcessEvent) -> None:
        """Takes an event of the process."""
        if isinstance(event, events.Ended):
            self.exit_code = event.exit_code
        elif isinstance(event, events.Said) and event.line == READY:
            self.ready = True
        elif isinstance(event, events.Said) and event.line.startswith("{"):
            try:
                self.summary = CaptureSummary.read(json.loads(event.line), "summary")
            except (BadInput, ValueError) as error:
                log.debug("%s: not a summary: %s: %.80s", self.client.name, error, event.line)


def start_captures(request: Request, folders: Mapping[str, str], listener: Listener) -> list[HostCapture]:
    """Starts a capture on every host if the run asks for it, and waits until packets are recorded.

    Raises PermanentError, with the remedy, if a host does not permit it.
    """
    if request.spec.measurement.capture is None:
        return []
    captures = []
    for name, client in request.clients.items():
        nic = request.links.data_nic(request.spec.setting, client)
        if nic is None:
            raise PermanentError(f"{name}: capture needs the interface of the data network; add nic: to the inventory")
        capture = HostCapture(client, folders[name])
        listener.others[capture.process] = capture.take
        argv = [*client.agent_command, "capture", "--nic", nic, "--out", capture.packets, "--host", name]
        argv += ["--limit", f"{request.limit_s + MARGIN_S:g}"]
        keeper = request.hosts[name].packet_keeper
        start = requests.Start(
            name=capture.process,
            argv=(*argv, *(("--keeper", keeper) if keeper else ())),
            stderr=capture.log,
            talk=True,
            limit_s=request.limit_s + 2 * MARGIN_S,
        )
        client.ask(start)
        captures.append(capture)
    try:
        listener.until(
            lambda: all(capture.ready or capture.over for capture in captures),
            READY_S,
            lambda: "no packets are recorded on " + ", ".join(c.client.name for c in captures if not c.ready),
        )
        for capture in captures:
            if capture.over:
                words = listener.tail(capture.client, capture.log)
                kind = PermanentError if capture.exit_code == _REFUSED else AttemptError
                raise kind(f"{capture.client.name}: {words[-1] if words else exit_text(capture.exit_code)}")
    except BaseException:
        for capture in captures:
            try_ask(capture.client, requests.Stop(names=(capture.process,), grace_s=2.0), timeout_s=15.0)
        raise
    return captures


def stop_captures(captures: Sequence[HostCapture], listener: Listener, seconds: float) -> None:
    """Ends the captures after the last task. Raises AttemptError for one that failed meanwhile."""
    for capture in captures:
        if not capture.over:
            try_ask(capture.client, requests.Tell(name=capture.process, line=STOP))
    listener.until(
        lambda: all(capture.over for capture in captures),
        seconds,
        lambda: "captures did not end: " + ", ".join(c.client.name for c in captures if not c.over),
    )
    for capture in captures:
        if capture.summary is None:
            words = listener.tail(capture.client, capture.log)
            why = words[-1] if words else exit_text(capture.exit_code)
            raise AttemptError(f"the packet capture on {capture.client.name} failed: {why}")


def seal_capture(capture: HostCapture) -> None:
    """Makes the packet file on the host. What is missing in it is a warning: the run itself is complete."""
    request = requests.Packets(source=capture.samples, target=capture.packets)
    told = capture.client.ask(request, timeout_s=SEAL_S)
    if told.dropped:
        every = told.rows + told.dropped
        log.warning("%s: %d of %d frames were not recorded", capture.client.name, told.dropped, every)
    if told.stopped_early:
        log.warning("%s: the packet capture ended early: %s", capture.client.name, told.stopped_early)
