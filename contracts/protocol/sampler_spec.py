"""Specification of a trace, from the sampler's command line or from the controller, which sends it as a JSON file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Dict, Optional, Tuple

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, read_json_file

MIN_HZ, MAX_HZ = 1.0, 1000.0
DAY_S = 86_400.0


@dataclass(frozen=True)
class SamplerSpec:
    """One trace. The fields are the keys of the file."""

    out: str  # the Parquet file; the flows go beside it, to `x.flows.parquet`
    hz: float = 100.0
    for_s: Optional[float] = None  # duration; None: until something else ends it
    limit_s: float = DAY_S  # upper limit of the duration in any case
    nic: Tuple[str, ...] = ()  # interfaces
    gpu: Tuple[str, ...] = ()  # GPUs by index or UUID
    pid: Optional[int] = None  # first process of the task; sampling ends with it
    command: Tuple[str, ...] = ()  # command to start and watch instead of `pid`
    flows_hz: Optional[float] = None  # rate at which the TCP flows are read; None: never
    host: bool = False  # sample only the host's CPU and memory, which are part of every trace anyway
    watch_stdin: bool = False
    """Whether stdin is the controller's channel: sampling ends when it closes, and clock probes are answered."""
    realtime: bool = True  # whether to request real-time priority
    labels: Dict[str, str] = field(default_factory=dict)  # copied into the metadata of the trace: the run, the task

    def __post_init__(self) -> None:
        _within("--hz", self.hz, MIN_HZ, MAX_HZ)
        if self.flows_hz is not None:
            _within("--flows", self.flows_hz, 0.1, self.hz)
        if self.for_s is not None:
            _within("--for", self.for_s, 0.001, 1e9)
        _within("--limit", self.limit_s, 0.001, 1e9)
        if self.pid is not None and self.command:
            raise BadInput("--pid and a command: expected one of the two")
        for kind, names in (("--nic", self.nic), ("--gpu", self.gpu)):
            if len(set(names)) < len(names):
                raise BadInput(f"{kind}: {', '.join(names)}: expected each once")
        if not (self.nic or self.gpu or self.pid is not None or self.command or self.flows_hz or self.host):
            raise BadInput(
                "nothing to sample: expected at least one of --nic, --gpu, --pid, --flows, --host or -- COMMAND"
            )


def _within(option: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise BadInput(f"{option} {value:g}: expected {low:g} to {high:g}")


def read_spec(path: Path) -> SamplerSpec:
    """Reads the file that the controller wrote. Raises BadInput with the file and the place in it."""
    return read_json_file(path, partial(from_plain, SamplerSpec))
