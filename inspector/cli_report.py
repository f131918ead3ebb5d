"""driple-report: a page to look at."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-report",
    description="Make one self-contained HTML page of a sweep, a dataset or an inspector.",
    example="driple-report traces/p2w2",
)
