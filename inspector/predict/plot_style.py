"""What all pictures of predictions have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from driple.contracts.formats.dataset import is_simulated
from driple.inspector.predict.prediction import Prediction

COLOURS = ("#1f4e79", "#f4a259", "#5b8e7d", "#8c5e8c", "#bc4b51", "#7a7a7a", "#3a86c8", "#c9a227")
LIMIT_COLOUR = "#bc4b51"


def provenance(answers: Sequence[Prediction], name: Callable[[Prediction], str] = lambda one: one.setting) -> str:
    """The end of a title: which settings are simulated, and what the inspectors learned from.

    Args:
        answers: what is drawn.
        name: of the setting of an answer.
    """
    simulated = sorted({name(one) for one in answers if one.simulation is not None})
    kinds = sorted({one.provenance for one in answers if one.inspector is not None})
    parts = (
        [f"inspector: {' and '.join(kind.upper() if is_simulated(kind) else kind for kind in kinds)}"] if kinds else []
    )
    parts += [f"SIMULATED: {', '.join(simulated)}"] if simulated else []
    return f" ({'; '.join(parts)})"


def drawn(ends: tuple[float, float] | None, value: float) -> tuple[float, float]:
    """An interval as it can be drawn: an end that has no limit is the value itself."""
    least, greatest = ends or (value, value)
    return least, greatest if math.isfinite(greatest) else value


def bare(axis: Any) -> None:
    """Light grid, no frame."""
    axis.tick_params(labelsize=9, colors="#333333")
    axis.grid(axis="y", color="#e4e4e4", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
