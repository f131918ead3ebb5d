"""Markdown tables of the figures of simulator_cpu.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.metrics import COLUMNS
from driple.inspector.evaluation.scores import scores

OURS = {"simulated": "simulator alone", "corrected": "simulator, corrected"}
PEERS = {"inspector": "inspector without simulator", "trees": "trees", "mean": "mean"}
PARTS = {
    "families": "new families: the training and validation sides in folds, everything refitted for each",
    "architecture": "test families, parameters and correction of the setting itself",
    "transfer": "test families, parameters and correction of cpu-p1w2-1g",
}


def tables(figures: Mapping[str, Any]) -> str:
    """For each part two tables: the targets, and the step time."""
    lines = []
    for part, title in PARTS.items():
        found = {setting: rows for setting, parts in figures.items() if (rows := _joined(parts, part))}
        if found:
            lines += [f"### {title.capitalize()}", "", *_targets(found), "", *_steps(found), ""]
    return "\n".join(lines)


def _joined(parts: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part, or all folds of it as one."""
    folds = [value for key, value in parts.items() if key.partition(" ")[0] == name]
    joined: dict[str, Any] = {}
    for fold in folds:
        for key, value in {**fold, **fold.get("peers", {})}.items():
            if isinstance(value, list):
                joined.setdefault(key, []).extend(value)
    return joined


def _targets(found: Mapping[str, Any]) -> list[str]:
    lines = ["NRMSE (MAPE) of the targets:", "", f"| predictor | {' | '.join(found)} |", f"|---{'|---' * len(found)}|"]
    for name, title in {**OURS, **PEERS}.items():
        cells = [_score(rows, name) for rows in found.values()]
        if any(cells):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _score(rows: Mapping[str, Any], name: str) -> str:
    if name not in rows:
        return ""
    overall = scores(_array(rows["measured"]), _array(rows[name]), COLUMNS).overall
    assert overall.nrmse is not None and overall.mape is not None
    return f"{100 * overall.nrmse:.1f} ({100 * overall.mape:.1f})"


def _steps(found: Mapping[str, Any]) -> list[str]:
    lines = ["Error of the simulated step time in percent:", "", "| setting | workloads | MAPE | median | largest |"]
    lines.append("|---|---|---|---|---|")
    for setting, rows in found.items():
        errors = 100 * np.abs(_array(rows["simulated_step_s"]) / _array(rows["measured_step_s"]) - 1)
        worst = rows["workloads"][int(errors.argmax())]
        means = f"{errors.mean():.1f} | {np.median(errors):.1f}"
        lines.append(f"| {setting} | {len(errors)} | {means} | {errors.max():.0f}, {worst} |")
    return lines


def _array(values: Any) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)
