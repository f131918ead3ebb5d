"""Reads the folder of an inspector for a report: only files, so a page needs no torch."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import FILE, PREDICTIONS_FILE, REPORT_FILE, check_header
from driple.contracts.json_values import read_json_file
from driple.pipeline.reports.learning_curves import Curve, read_curves

Score = Mapping[str, Any]
"""One row of errors.csv, of one side, predictor and target."""


@dataclass(frozen=True)
class Files:
    """The files of an inspector that can be read."""

    folder: Path
    about: Mapping[str, Any]
    """inspector.json."""
    report: Mapping[str, Any]
    """report.json; empty if there is none."""
    predictions: Sequence[Mapping[str, str]] = field(repr=False)
    curves: Sequence[Curve] = field(repr=False)
    faults: Sequence[str]

    @property
    def name(self) -> str:
        """Setting, and role where it is not the usual one."""
        role = self.about.get("role")
        return str(self.about.get("setting")) + ("" if role == "worker" else f", {role}")


def read_files(folder: Path) -> Files:
    """Reads the folder; a bad file beside inspector.json is a fault. Raises BadInput if inspector.json is bad."""
    about = read_json_file(folder / FILE, check_header)
    faults: list[str] = []
    report: Mapping[str, Any] = {}
    predictions: list[dict[str, str]] = []
    try:
        report = read_json_file(folder / REPORT_FILE, _mapping)
    except BadInput as error:
        faults.append(f"no errors: {str(error).replace(f'{folder}/', '')}; driple-train --evaluate writes them")
    try:
        with (folder / PREDICTIONS_FILE).open(newline="", encoding="utf-8") as stream:
            predictions = list(csv.DictReader(stream))
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "not readable"
        faults.append(f"no predictions: {PREDICTIONS_FILE}: {reason}; driple-train --evaluate writes them")
    weights = str(about.get("weights"))
    try:
        if hashlib.sha256((folder / Path(weights).name).read_bytes()).hexdigest() != about.get("weights_sha256"):
            faults.append(f"{weights} is not the file that was saved: its SHA-256 differs")
    except OSError as error:
        faults.append(f"no weights: {weights}: {error.strerror}")
    return Files(folder, about, report, predictions, read_curves(folder), faults)


def scores(report: Mapping[str, Any], side: str) -> dict[str, dict[str, Score]]:
    """Scores of one side by predictor, then by target."""
    found: dict[str, dict[str, Score]] = {}
    errors = report.get("errors")
    for row in errors if isinstance(errors, list) else []:
        if isinstance(row, dict) and row.get("side") == side:
            found.setdefault(str(row.get("predictor")), {})[str(row.get("target"))] = row
    return found


def part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A value that is an object; an empty one if it is something else."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def number(value: Any) -> float | None:
    """A finite number, also from text; None for everything else."""
    try:
        found = None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return found if found is not None and math.isfinite(found) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadInput("expected an object")
    return value
