"""driple-train: a dataset to an inspector."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-train",
    description="Train the inspector of a setting on its dataset, from scratch or from another setting's.",
    example="driple-train --setting v100-p1w2-pcie",
)
