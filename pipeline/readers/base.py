"""What a reader hands over."""

from __future__ import annotations

from dataclasses import dataclass, field

from driple.pipeline.traces.series import Series


@dataclass(frozen=True)
class Source:
    """A file, read."""

    what: str
    """What kind of file it was taken for, in words."""
    series: tuple[Series, ...]
    steps_s: dict[str, float] = field(default_factory=dict)
    """Training step by name of series, where the file knows of one."""
    notes: tuple[str, ...] = ()
    """Lines about the file for a person: how well it was sampled, what was left out."""
