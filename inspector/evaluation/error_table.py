"""Errors of an inspector beside those of the baselines, always on the same rows and in one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from driple.contracts.errors import BadInput
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example, Examples
from driple.inspector.evaluation.baselines import BASELINES
from driple.inspector.evaluation.baselines import fit as fit_baseline
from driple.inspector.evaluation.calibration import coverage
from driple.inspector.evaluation.scores import Scores, scores
from driple.inspector.model.inspector_model import InspectorModel

Predict = Callable[[Examples], FloatArray]

INSPECTOR = "inspector"
SIDES = ("val", "test")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of errors.csv."""

    setting: str
    role: str
    split: str
    side: str
    predictor: str
    target: str
    """A column of contracts.metrics, the key of a resource (mean of its three), or `all`."""
    nrmse: float | None
    mape: float | None
    r2: float | None
    rows: int
    """With a true and a predicted value."""
    zeros: int
    """Of these, with a true value of 0: they are not in the MAPE."""
    unpredicted: int
    """With a true value and no predicted one: they are in no score."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """All that is known of how good an inspector is on one split."""

    setting: str
    role: str
    split: str
    provenance: str
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
        """Names of the targets."""
        return self.items[0].columns

    @property
    def predictors(self) -> tuple[str, ...]:
        """The inspector first."""
        return tuple(self.predicted)

    def rows(self) -> list[Row]:
        """The table, line by line."""
        return [
            Row(
                setting=self.setting,
                role=self.role,
                split=self.split,
                side=side,
                predictor=predictor,
                target=target,
                **dataclasses.asdict(score),
            )
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
    """Scores an inspector and the baselines.

    Args:
        inspector: the one to be judged.
        examples: of its setting and role.
        split: by which sides are taken; its own if not given. Of another one only the rows are looked at that it was
            neither trained on nor chosen by.
        others: more predictors for the table.
        execution: how neighbours are summed.

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
        notes.append(f"trained on the {inspector.split} split: only rows that are on its test side too are looked at")
    sides = {side: _unseen(inspector, examples.side(split, side), split) for side in SIDES}
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
        provenance=examples.provenance,
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


def _unseen(inspector: InspectorModel, rows: Examples, split: str) -> Examples:
    """Of another split than its own, the rows on the test side of its own."""
    if split == inspector.split:
        return rows
    kept = tuple(item for item in rows.items if getattr(item, f"split_{inspector.split}") == "test")
    return dataclasses.replace(rows, items=kept)
