"""A transfer against training from scratch: same data, same options, same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driple.inspector.train import Fitted


def compare(transferred: Sequence[Fitted], scratch: Sequence[Fitted]) -> dict[str, Any]:
    """Error and wall time of both, and how long each took to the error that both reached."""
    error = max(best_nrmse(transferred), best_nrmse(scratch))
    first, second = seconds_to(transferred, error), seconds_to(scratch, error)
    return {
        "seconds": _seconds(transferred),
        "val_nrmse": best_nrmse(transferred),
        "scratch_seconds": _seconds(scratch),
        "scratch_val_nrmse": best_nrmse(scratch),
        "equal_val_nrmse": error,
        "seconds_to_equal": first,
        "scratch_seconds_to_equal": second,
        "times_faster": None if first is None or second is None or first <= 0 else second / first,
    }


def best_nrmse(fits: Sequence[Fitted]) -> float:
    """Best validation NRMSE of each network, on average."""
    return sum(min(row["val_nrmse"] for row in fitted.history) for fitted in fits) / len(fits)


def seconds_to(fits: Sequence[Fitted], error: float) -> float | None:
    """Wall time until the networks had a validation NRMSE that small, all together; None where one never had."""
    total = 0.0
    for fitted in fits:
        reached = [row["seconds"] for row in fitted.history if row["val_nrmse"] <= error]
        if not reached and len(fits) == 1:
            return None
        # Of several networks, one that never gets as far as their average counts with all its time.
        total += reached[0] if reached else fitted.seconds
    return total


def to_text(found: Mapping[str, Any]) -> str:
    """One line for people."""
    line = (
        f"transfer: validation NRMSE {100 * found['val_nrmse']:.2f} % in {found['seconds']:.1f} s; from scratch "
        f"{100 * found['scratch_val_nrmse']:.2f} % in {found['scratch_seconds']:.1f} s"
    )
    if found["times_faster"] is None:
        return line
    return (
        f"{line}; to {100 * found['equal_val_nrmse']:.2f} % {found['seconds_to_equal']:.2f} s against "
        f"{found['scratch_seconds_to_equal']:.2f} s ({found['times_faster']:.1f}x)"
    )


def _seconds(fits: Sequence[Fitted]) -> float:
    return round(sum(fitted.seconds for fitted in fits), 3)
