"""Pictures of an evaluation: errors beside the baselines', and predictions against true values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.formats.inspector import ERRORS_PICTURE, PREDICTIONS_PICTURE
from driple.contracts.metrics import TARGET_OF_COLUMN
from driple.contracts.run_dir import replacing
from driple.inspector.data.array_types import FloatArray
from driple.inspector.evaluation.error_table import INSPECTOR, Evaluation

_COLOURS = ("#1f4e79", "#c9c9c9", "#f4a259", "#5b8e7d", "#8c5e8c")
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_CUT = 1.0
"""NRMSE at which a bar is cut, so that the others stay visible."""


def draw(folder: Path, found: Evaluation) -> None:
    """Writes errors.png and predictions.png.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, make in ((ERRORS_PICTURE, _errors), (PREDICTIONS_PICTURE, _predictions)):
        figure = make(pyplot, found)
        try:
            with replacing(folder / name, "wb") as stream:
                figure.savefig(stream, format="png", dpi=90, metadata={"Software": None})
        finally:
            pyplot.close(figure)


def _errors(pyplot: Any, found: Evaluation) -> Any:
    """NRMSE of each target as bars, the inspector's in the strongest colour."""
    figure, axis = pyplot.subplots(figsize=(11, 5.5), layout="constrained")
    of_side = found.scores["test"]
    names = found.predictors
    height = 0.8 / len(names)
    labels = [*found.columns, "mean of all"]
    places: FloatArray = np.arange(len(labels), dtype=np.float64)
    for number, name in enumerate(names):
        scores = [*of_side[name].targets.values(), of_side[name].overall]
        values = [np.nan if score.nrmse is None else score.nrmse for score in scores]
        x = places + (number - (len(names) - 1) / 2) * height
        bars = 100 * np.minimum(np.nan_to_num(values, nan=0.0), _CUT)
        axis.bar(x, bars, height, label=name, color=_COLOURS[number % len(_COLOURS)])
        for place, value in zip(x, values, strict=True):
            if value > _CUT:
                axis.annotate("cut", (place, 100 * _CUT), ha="center", va="bottom", fontsize=7, rotation=90)
    axis.axvline(len(found.columns) - 0.5, ymax=0.9, color="#999999", linewidth=0.8)
    axis.set_xticks(places, labels, rotation=35, ha="right", fontsize=8)
    axis.set_ylabel("NRMSE, % of the range of the test values")
    axis.set_title(f"{_title(found)} ({found.counts['test']})", loc="left", fontsize=10)
    axis.margins(y=0.15)
    axis.legend(frameon=False, ncols=len(names), fontsize=9)
    _bare(axis)
    return figure


def _predictions(pyplot: Any, found: Evaluation) -> Any:
    """A panel for each target: a point for each test workload, and the line on which it should be."""
    rows = -(-len(found.columns) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(11, 3.25 * rows), layout="constrained", squeeze=False)
    for axis in axes.ravel()[len(found.columns) :]:
        axis.set_axis_off()
    for column, (axis, name) in enumerate(zip(axes.ravel(), found.columns, strict=False)):
        target = TARGET_OF_COLUMN[name]
        true, predicted = found.truth[:, column], found.predicted[INSPECTOR][:, column]
        known = ~np.isnan(true) & ~np.isnan(predicted)
        axis.set_title(target.column, loc="left", fontsize=9)
        _bare(axis)
        if not known.any():
            axis.text(0.5, 0.5, "no values", ha="center", va="center", transform=axis.transAxes, color="#777777")
            axis.set_xticks([])
            axis.set_yticks([])
            continue
        greatest = max(float(true[known].max()), float(predicted[known].max()))
        scale, prefix = _scale(greatest, target.unit)
        x, y = true[known] / scale, predicted[known] / scale
        if found.spread is not None:
            bars = found.spread[known, column] / scale
            axis.errorbar(x, y, yerr=bars, fmt="none", ecolor=_COLOURS[1], elinewidth=0.8, zorder=1)
        axis.scatter(x, y, s=12, color=_COLOURS[0], linewidths=0, alpha=0.8, zorder=2)
        ends = (0.0, 1.05 * greatest / scale if greatest > 0 else 1.0)
        axis.plot(ends, ends, color=_COLOURS[3], linewidth=0.9, linestyle="--", zorder=0)
        axis.set_xlim(ends)
        axis.set_ylim(ends)
        axis.set_xlabel(f"true, {prefix}{target.unit}", fontsize=8)
        axis.set_ylabel(f"predicted, {prefix}{target.unit}", fontsize=8)
    figure.suptitle(_title(found), fontsize=10)
    return figure


def _scale(greatest: float, unit: str) -> tuple[float, str]:
    if not unit.endswith("/s"):
        return 1.0, ""
    return next(((size, text) for size, text in _PREFIXES if greatest >= 10 * size), (1.0, ""))


def _title(found: Evaluation) -> str:
    return f"{found.setting}, {found.role}, {found.provenance}: test workloads of the {found.split} split"


def _bare(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
