"""A small shelf of inspectors for tests of driple-predict."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import inspector_work
import training_work

from driple.inspector.data.examples import Examples
from driple.inspector.model.inspector_folder import save
from driple.inspector.model.training_rows import TrainingRows, save_rows

SETTING = inspector_work.SETTING
OTHER = "v100-p2w2-40g"


def shelf(folder: Path, *, rows: bool = True) -> Examples:
    """Fills `folder` with the inspectors of two settings, the second one simulated, and one of parameter servers."""
    examples = inspector_work.examples(folder.parent / "datasets")
    inspector = training_work.trained(examples, training_work.small(ensemble=2)).inspector
    # A dataset has one setting: what the second learned is of no interest here.
    other = dataclasses.replace(inspector, setting=OTHER, provenance="simulated")
    server = dataclasses.replace(inspector, role="ps")
    for name, one in ((SETTING, inspector), (OTHER, other), (f"{SETTING}-ps", server)):
        save(folder / name, one)
        if rows:
            save_rows(folder / name, dataclasses.replace(TrainingRows.of(examples, "architecture"), role=one.role))
    return examples


def run_graph(checkout: Path) -> Path:
    """The graph of a real run: resnet20 at batch size 16, sync."""
    (found,) = checkout.glob("tests/data/runs/cpu-p1w2-1g-resnet20-*/graph/worker.parquet")
    return found


def options(folder: Path, **said: Any) -> list[str]:
    """A command line that asks these inspectors."""
    found = ["--inspectors", str(folder), "--datasets", str(folder / "nowhere")]
    for name, value in said.items():
        found += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return found
