"""Lines between the controller and a sampler with `watch_stdin`; see also clock.py.

sampler      ready        every source is open and sampling begins
controller   stop         end the trace
sampler      {...}        a SamplerSummary, the last line
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from driple.contracts.protocol.message import Message

READY = "ready"
STOP = "stop"


class SamplerSummary(Message):
    """Quality of a trace and of each of its sources."""

    asked: Dict[str, Any]  # the SamplerSpec, without defaults
    host: str
    kernel: str
    machine: str
    processors: Optional[int]
    priority: Dict[str, Any]
    stopped_by: Optional[str]
    seconds: float
    first_mono_ns: int
    last_mono_ns: int
    loop: Dict[str, Any]
    sources: Dict[str, Any]
    tables: Dict[str, Any]
    clean_stop: bool
    files: Dict[str, int]  # rows by path
    command_exit: Optional[int]  # exit code of the wrapped command, if there is one
