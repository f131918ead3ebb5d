"""Errors of an inspector beside those of the baselines, always on the same rows and in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import TEST, VAL, is_simulated, joined_provenance
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example, Examples
from driple.inspector.evaluation.baselines import BASELINES
from driple.inspector.evaluation.baselines import fit as fit_baseline
from driple.inspector.evaluation.calibration import coverage
from driple.inspector.evaluation.scores import Scores, scores
from driple.inspector.model.inspector_model import InspectorModel

Predict = Callable[[Examples], FloatArray]

INSPECTOR = "inspector"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """Errors of an inspector and other predictors on one split."""

    setting: str
    role: str
    split: str
    provenance: str
    """Of the rows, and of simulated rows that the inspector learned from."""
    counts: Mapping[str, int]
    """Workloads on each side."""
    scores: Mapping[str, Mapping[str, Scores]] = field(repr=False)
    """By side, then by predictor."""
    items: tuple[Example, ...] = field(repr=False)
    """Of the test side."""
    truth: FloatArray = field(repr=False)
    """[n, columns], of the test side."""
    predicted: Mapping[str, FloatArray] = field(repr=False)
    spread: FloatArray | None = field(repr=False)
    calibration: Mapping[str, float | int | None] | None
    """How many test values lie within the spread; None with a single network."""
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.items[0].columns

    @property
    def predictors(self) -> tuple[str, ...]:
        return tuple(self.predicted)

    def rows(self) -> list[dict[str, Any]]:
        """Lines of errors.csv: the scores of every side, predictor and target, resource or `all`."""
        about = {name: getattr(self, name) for name in ("setting", "role", "split")}
        return [
            {**about, "side": side, "predictor": predictor, "target": target, **vars(score)}
            for side, of_side in self.scores.items()
            for predictor, found in of_side.items()
            for target, score in found.rows()
        ]


def evaluate(
    inspector: InspectorModel,
    examples: Examples,
    split: str | None = None,
    *,
    others: Mapping[str, Predict] | None = None,
    execution: str = "auto",
) -> Evaluation:
    """Scores an inspector and the baselines on the examples of its setting and role.

    Args:
        split: the inspector's own by default. Of another, only rows on the test side of its own split are used.
        others: more predictors for the table.

    Raises:
        BadInput: the examples are of another setting or role, or a side has no rows.
    """
    for name in ("setting", "role"):
        if getattr(inspector, name) != getattr(examples, name):
            raise BadInput(f"an inspector of {name} {getattr(inspector, name)} and rows of {getattr(examples, name)}")
    examples, split = examples.select(inspector.columns), split or inspector.split
    train, notes = examples.side(split, "train"), []
    if inspector.dataset_sha256 != examples.sha256:
        notes.append("the dataset has changed since the inspector was trained")
    if inspector.plains is not None and not any(inspector.training.get("best_epochs", [1])):
        notes.append("no network improved on the base model on the validation rows: the base model predicts alone")
    if split != inspector.split:
        notes.append(f"trained on the {inspector.split} split: only rows on its test side are used")
    sides = {side: _unseen(inspector, examples.side(split, side), split) for side in (VAL, TEST)}
    if not len(train) or not len(sides["test"]):
        raise BadInput(f"no rows to judge on: side {'test' if len(train) else 'train'} of the {split} split is empty")
    val = examples.side(split, "val")
    predictors: dict[str, Predict] = {INSPECTOR: lambda rows: inspector.predict(rows, execution, judged=True)[0]}
    predictors |= dict(others or {})
    predictors |= {name: fit_baseline(name, train, val if len(val) else None) for name in BASELINES}
    predicted = {
        side: {name: predict(rows) for name, predict in predictors.items()} for side, rows in sides.items() if len(rows)
    }
    truth = {side: np.where(inspector.preparation.usable, rows.targets(), np.nan) for side, rows in sides.items()}
    spread = inspector.predict(sides["test"], execution, judged=True)[1]
    return Evaluation(
        setting=examples.setting,
        role=examples.role,
        split=split,
        provenance=_provenance(inspector, examples),
        counts={"train": len(train), **{side: len(rows) for side, rows in sides.items()}},
        scores={
            side: {name: scores(truth[side], values, inspector.columns) for name, values in found.items()}
            for side, found in predicted.items()
        },
        items=sides["test"].items,
        truth=truth["test"],
        predicted=predicted["test"],
        spread=spread,
        calibration=None if spread is None else coverage(truth["test"], predicted["test"][INSPECTOR], spread),
        notes=tuple(notes),
    )


def _provenance(inspector: InspectorModel, examples: Examples) -> str:
    learned = [inspector.provenance] if is_simulated(inspector.provenance) else []
    return joined_provenance((examples.provenance, *learned))


def _unseen(inspector: InspectorModel, rows: Examples, split: str) -> Examples:
    if split == inspector.split:
        return rows
    kept = tuple(item for item in rows.items if getattr(item, f"split_{inspector.split}") == "test")
    return dataclasses.replace(rows, items=kept)
