"""driple-metrics: burst and idle of any trace."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-metrics",
    description="Print burst duration, idle duration and burst amount of every series in a trace file.",
    example="driple-metrics trace.parquet --json",
)
