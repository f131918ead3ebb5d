"""Fingerprint: how fast a machine is, by a micro-benchmark of a second. agents/hostinfo/speed_probe.py takes it.

It tells whether two rows come from equally fast machines. It needs only Python, and says nothing about a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain

VERSION = 1
"""Of the benchmark. Figures of different versions cannot be compared."""

COMPARED: Tuple[str, ...] = ("hash_bytes_per_s", "deflate_bytes_per_s", "copy_bytes_per_s", "core_speedup")
"""What `differs` compares: latency and loopback vary too much between two fingerprints of one machine."""
ONE_CORE: Tuple[str, ...] = ("hash_bytes_per_s", "deflate_bytes_per_s")
"""What other work on the machine hardly changes, as long as one core is free."""


@dataclass(frozen=True)
class Fingerprint:
    """Medians of several repeats. Python's version is in the record of the host."""

    cores: int  # that a process may use
    hash_bytes_per_s: float  # SHA-256 on one core: instructions of the processor
    deflate_bytes_per_s: float  # zlib on one core: branches, table look-ups, cache
    core_speedup: float  # zlib on all usable cores at once, as a multiple of one core
    copy_bytes_per_s: float  # a copy in memory that is larger than most caches, bytes read
    switch_s: float  # one byte to another process and back through pipes: system calls, context switches
    loopback_bytes_per_s: float  # a TCP stream from this machine to itself
    spread_pct: Dict[str, float] = field(default_factory=dict)
    """By measure: range of the middle half of the repeats, in percent of the median."""
    version: int = VERSION

    @property
    def compared_spread_pct(self) -> float:
        """The largest of what `differs` compares."""
        return max((self.spread_pct.get(name, 0.0) for name in COMPARED), default=0.0)


MEASURES: Tuple[str, ...] = tuple(name for name, kind in Fingerprint.__annotations__.items() if kind == "float")
"""Fields that are medians of repeats."""


def read_fingerprint(value: Any) -> Fingerprint:
    """Decodes the plain form that an agent sends. Raises BadInput."""
    found = from_plain(Fingerprint, value, "fingerprint")
    for name in MEASURES:
        if not getattr(found, name) > 0:
            raise BadInput(f"fingerprint.{name}: expected more than 0, got {getattr(found, name):g}")
    return found


def differs(first: Fingerprint, second: Fingerprint, measures: Tuple[str, ...] = COMPARED) -> float:
    """Largest relative difference of what is compared: 0.1 if one machine is 10 % faster than the other.

    Raises:
        BadInput: the fingerprints are of different versions.
    """
    if first.version != second.version:
        raise BadInput(f"fingerprints of versions {first.version} and {second.version} cannot be compared")
    ratios: List[float] = [getattr(first, name) / getattr(second, name) for name in measures]
    return max(max(ratio, 1 / ratio) - 1 for ratio in ratios)
