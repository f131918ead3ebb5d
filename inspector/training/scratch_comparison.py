"""A transfer against training from scratch: same data, same options, same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from driple.inspector.training.train_network import Fitted

_FIGURES = (
    *("seconds", "val_nrmse", "scratch_seconds", "scratch_val_nrmse", "equal_val_nrmse"),
    *("seconds_to_equal", "scratch_seconds_to_equal", "seconds_before", "scratch_seconds_before"),
)
_RATIOS = ("times_faster", "times_faster_with_before")
"""None if no epoch took any time."""


def compare(transferred: Sequence[Fitted], scratch: Sequence[Fitted]) -> dict[str, Any]:
    """Error and wall time of both, and the time of each to the error that both reached.

    Networks of an ensemble are trained on different bootstrap samples, so they are compared one by one and their times
    added up. Times are those of epochs; `before` is the time before the first.
    """
    both = transferred, scratch
    errors = [max(map(best_nrmse, pair)) for pair in zip(*both, strict=True)]
    times = [sum(map(seconds_to, each, errors)) for each in both]
    before = [sum(fitted.before for fitted in each) for each in both]
    return {
        "seconds": _seconds(transferred),
        "val_nrmse": fmean(map(best_nrmse, transferred)),
        "scratch_seconds": _seconds(scratch),
        "scratch_val_nrmse": fmean(map(best_nrmse, scratch)),
        "equal_val_nrmse": fmean(errors),
        "seconds_to_equal": times[0],
        "scratch_seconds_to_equal": times[1],
        "times_faster": _ratio(times),
        "seconds_before": before[0],
        "scratch_seconds_before": before[1],
        "times_faster_with_before": _ratio([time + more for time, more in zip(times, before, strict=True)]),
    }


def read_back(report: Any) -> dict[str, Any]:
    """The result of `compare` from a report; empty where it is not there or incomplete."""
    found = report.get("transfer") if isinstance(report, dict) else None
    if not isinstance(found, dict):
        return {}
    kept = {name: found.get(name) for name in (*_FIGURES, *_RATIOS)}
    whole = all(isinstance(kept[name], int | float) for name in (*_FIGURES, *(_RATIOS if kept[_RATIOS[0]] else ())))
    return kept if whole else {}


def best_nrmse(fitted: Fitted) -> float:
    """Best validation NRMSE of all epochs. The best epoch may be another, if the loss decides."""
    return min(row["val_nrmse"] for row in fitted.history)


def seconds_to(fitted: Fitted, error: float) -> float:
    """Wall time of epochs until the validation NRMSE was that small."""
    return next(row["seconds"] for row in fitted.history if row["val_nrmse"] <= error)


def _ratio(times: Sequence[float]) -> float | None:
    ours, theirs = times
    return theirs / ours if ours > 0 else None


def to_text(found: Mapping[str, Any]) -> str:
    """One line for people."""
    line = (
        f"transfer: validation NRMSE {100 * found['val_nrmse']:.2f} % in {found['seconds']:.1f} s; from scratch "
        f"{100 * found['scratch_val_nrmse']:.2f} % in {found['scratch_seconds']:.1f} s"
    )
    if found["times_faster"] is None:
        return line
    times = [found["seconds_to_equal"], found["scratch_seconds_to_equal"]]
    whole = [times[0] + found["seconds_before"], times[1] + found["scratch_seconds_before"]]
    return (
        f"{line}; to {100 * found['equal_val_nrmse']:.2f} % {times[0]:.2f} s of epochs against {times[1]:.2f} s "
        f"({found['times_faster']:.1f}x), including the start {whole[0]:.2f} s against {whole[1]:.2f} s "
        f"({found['times_faster_with_before']:.1f}x)"
    )


def _seconds(fits: Sequence[Fitted]) -> float:
    return round(sum(fitted.seconds for fitted in fits), 3)
