"""TrafficJob: what one training job sent, from packets or from counters, and what kind of job it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.formats.dataset import MEASURED
from driple.contracts.traffic_formulas import StepBytes, step_bytes
from driple.pipeline.traffic.packet_columns import Packets
from driple.pipeline.traffic.packet_events import senders_only
from driple.pipeline.traffic.tcp import Loss, Retransmissions, retransmissions, true_loss
from driple.pipeline.traffic.traffic_events import BINS_S, Events

if TYPE_CHECKING:  # captures do not need what reads runs
    from driple.pipeline.traces.align import Steps, Window
    from driple.pipeline.traces.load_run import Run

PACKETS = "packets"
COUNTERS = "counters"


@dataclass(frozen=True)
class JobKind:
    """The workload and condition of a job; None where it is not known."""

    framework: str | None = None
    backend: str | None = None
    model: str | None = None
    optimiser: str | None = None
    batch_size: int | None = None
    topology: str | None = None
    loss_pct: float | None = None
    congestion: str | None = None
    """Congestion control of TCP."""
    workers: int | None = None
    servers: int = 0
    gradient_bytes: float | None = None

    @property
    def variant(self) -> str:
        """Framework and backend, as the published study groups them."""
        return "_".join(part for part in (self.framework, self.backend) if part) or "unknown"


@dataclass(frozen=True)
class TrafficJob:
    """One job."""

    name: str
    path: Path
    source: str
    """`packets` or `counters`."""
    kind: JobKind
    events: Events
    """What every task sent, each byte once: on the wire with packets, payload of TCP flows with counters.

    Empty if only the interfaces were counted."""
    provenance: str = MEASURED
    """`measured` or `simulated`."""
    interface: Events | None = None
    """With counters: bytes that interfaces sent, at the sampling rate, without pairs."""
    counted_again: int | None = None
    """With counters: segments that the kernel sent again; None if unknown."""
    packets: Packets | None = field(default=None, repr=False)
    """Of all hosts, as captured."""
    payload: Events | None = None
    """As `events`, without headers; None with counters."""
    steps: Mapping[str, Steps] = field(default_factory=dict)
    """Measured steps of each worker."""
    window: Window | None = None
    """The measured part."""
    expected: Mapping[str, StepBytes] | None = None
    """Payload of each task in a step, where the placement of tasks and variables is known."""
    learned: Sequence[tuple[float, float]] = ()
    """Times and accuracies (or losses) of steps of the first worker."""
    learned_what: str = "loss"
    run: Run | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    set_aside: tuple[tuple[Path, str], ...] = ()
    """Captures of the job that could not be used, with the reasons."""

    @property
    def best(self) -> Events:
        """The finest record of the total."""
        return self.events if self.interface is None else self.interface

    @property
    def flow_count(self) -> int | None:
        """Flows that sent something; None if only the interfaces were counted."""
        return len(self.events.flow_facts()) if self.events.flows or self.interface is None else None

    @property
    def duration_s(self) -> float:
        """The measured part; without steps the time from the first packet to the last."""
        if self.window is not None:
            return self.window.duration_s
        start_s, end_s = self.best.span
        return end_s - start_s

    @property
    def measured(self) -> Events:
        """What was sent in the measured part."""
        return self.best if self.window is None else self.best.between(self.window.start_s, self.window.end_s)

    @property
    def step_count(self) -> int | None:
        """Steps of the job: those of the worker that did most."""
        return max((len(steps.step) for steps in self.steps.values()), default=None)

    def sent_per_step(self) -> dict[str, float]:
        """Bytes that each task sent in a step: payload, or with counters what its interface counted."""
        count = self.step_count
        if not count or self.window is None:
            return {}
        events = self.payload or self.best
        measured = events.between(self.window.start_s, self.window.end_s)
        return {task: sent / count for task, sent in measured.sent().items()}

    def formula(self) -> Mapping[str, StepBytes]:
        """Payload of each task in a step by the formula of the strategy; empty if there is none."""
        kind = self.kind
        if self.expected is not None:
            return self.expected
        if kind.topology is None or kind.gradient_bytes is None or kind.workers is None:
            return {}
        return step_bytes(kind.topology, kind.gradient_bytes, kind.workers, kind.servers)

    def relative_to_formula(self) -> dict[str, float]:
        """Bytes of each task in a step, divided by the formula. Interface counters include headers (up to 5 %)."""
        sent = self.sent_per_step()
        return {
            task: sent[task] / expected.sent
            for task, expected in self.formula().items()
            if expected.sent and task in sent
        }

    def retransmitted(self) -> Retransmissions | None:
        """Of the packets of senders; None without packets."""
        return None if self.packets is None else retransmissions(senders_only(self.packets))

    def lost(self) -> Loss | None:
        """None unless both ends were captured."""
        return None if self.packets is None else true_loss(self.packets)

    def burstiness(self) -> dict[float, float | None]:
        """Peak-to-mean of the total by size of bin."""
        return {bin_s: self.measured.peak_to_mean(bin_s) for bin_s in BINS_S}

    def to_json(self) -> dict[str, Any]:
        """The figures of the job as plain values."""
        again, lost = self.retransmitted(), self.lost()
        formula = self.formula()
        return {
            "name": self.name,
            "path": str(self.path),
            "source": self.source,
            "provenance": self.provenance,
            **vars(self.kind),
            "duration_s": self.duration_s,
            "steps": self.step_count,
            "bytes": self.best.total,
            "bytes_sent": self.best.sent(),
            "pairs": [[*pair, count] for pair, count in self.events.matrix().items()],
            "peak_to_mean": {f"{1000 * bin_s:g} ms": value for bin_s, value in self.burstiness().items()},
            "flows": [
                {
                    "source": row.flow.source_task,
                    "destination": row.flow.destination_task,
                    "source_port": row.flow.source.port,
                    "destination_port": row.flow.destination.port,
                    "protocol": row.flow.protocol,
                    "bytes": row.bytes,
                    "start_s": row.start_s,
                    "end_s": row.end_s,
                }
                for row in self.events.flow_facts()
            ],
            "retransmitted_segments": self.counted_again if again is None else again.segments,
            "retransmitted_share": None if again is None else again.share,
            "lost_share": None if lost is None else lost.share,
            "sent_per_step": self.sent_per_step(),
            "formula_per_step": {task: each.sent for task, each in formula.items()},
            "relative_to_formula": self.relative_to_formula(),
            "notes": list(self.notes),
        }
