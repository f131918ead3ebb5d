"""driple-build-dataset: run directories to one dataset per setting."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command("driple-build-dataset", "Turn run directories into one dataset per setting.", "driple-build-dataset traces/")
