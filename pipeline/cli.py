"""driple-build-dataset: run directories to one dataset per setting."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-build-dataset",
    description="Turn run directories into one dataset per setting.",
    example="driple-build-dataset traces/",
)
