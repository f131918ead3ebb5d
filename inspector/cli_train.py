"""driple-train: a dataset to an inspector."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command("driple-train", "Train the inspector of a setting on its dataset, from scratch or from another setting's.", "driple-train --setting v100-p1w2-pcie")
