"""Plots series with shaded bursts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.bursts.burst_metrics import Analysis
from driple.pipeline.traces.series import FloatArray, Series, thinned

MAX_SERIES = 40
_MAX_POINTS = 6000
_LINE, _BURST, _PARTIAL, _THRESHOLD = "#1f4e79", "#f4a259", "#c9c9c9", "#5b8e7d"
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
FORMATS = (".png", ".svg", ".pdf")


def plot(path: Path, title: str, analysed: Sequence[tuple[Series, Analysis]]) -> None:
    """Writes a plot with a row for each series. Partial bursts are grey; a dashed line shows the threshold.

    Raises BadInput if matplotlib is not installed, or the suffix is not a format.
    """
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import matplotlib
    except ImportError:
        raise BadInput("--plot needs matplotlib: pip install 'driple[pipeline]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = list(analysed)[:MAX_SERIES]
    # All rows share one time axis that starts at zero.
    origin = min((float(analysis.t_s[0]) for _, analysis in shown if len(analysis.t_s)), default=0.0)
    figure, axes = pyplot.subplots(
        len(shown), 1, figsize=(11, 1.0 + 1.5 * len(shown)), sharex=True, squeeze=False, layout="constrained"
    )
    for axis, (series, analysis) in zip(axes[:, 0], shown, strict=True):
        draw(axis, series, analysis, origin)
    axes[-1, 0].set_xlabel("s")
    figure.suptitle(
        title if len(shown) == len(analysed) else f"{title} (the first {MAX_SERIES} of {len(analysed)} series)"
    )
    try:
        with replacing(path, "wb") as stream:
            figure.savefig(stream, format=path.suffix[1:].lower(), dpi=90, metadata=_undated(path))
    except OSError as error:
        raise BadInput(f"--plot {path}: {error.strerror}") from None
    finally:
        pyplot.close(figure)


def draw(axis: Any, series: Series, analysis: Analysis, origin: float = 0.0) -> None:
    """One series on one axis."""
    scale, prefix = _scale(analysis.value)
    t_s, value = thinned(analysis.t_s - origin, analysis.value / scale, _MAX_POINTS)
    spans = analysis.spans
    if spans is not None:
        for colour, which in ((_BURST, spans.high & spans.whole), (_PARTIAL, spans.high & ~spans.whole)):
            boxes = _boxes(spans.start_s[which] - origin, spans.end_s[which] - origin)
            axis.fill_between(*boxes, transform=axis.get_xaxis_transform(), color=colour, alpha=0.55, linewidth=0)
        if analysis.threshold is not None:
            axis.axhline(analysis.threshold / scale, color=_THRESHOLD, linewidth=0.8, linestyle="--")
    axis.step(t_s, value, where="pre", color=_LINE, linewidth=0.9)
    axis.set_title(f"{series.name}   {described(analysis)}", loc="left", fontsize=9)
    axis.set_ylabel(f"{prefix}{series.unit}", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.margins(x=0)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def described(analysis: Analysis) -> str:
    """The pattern and its durations, short."""
    bib = analysis.bib
    if bib.pattern != "BIB" or bib.burst_s is None or bib.idle_s is None:
        return bib.pattern
    return f"{bib.pattern}: burst {bib.burst_s:.3g} s, idle {bib.idle_s:.3g} s, {bib.bursts} bursts"


def _boxes(start: FloatArray, end: FloatArray) -> tuple[Any, Any, Any]:
    """All spans as one filled shape, which is faster than one patch each."""
    x = np.stack([start, start, end, end], axis=1).ravel() if len(start) else np.zeros(0)
    top = np.tile([0.0, 1.0, 1.0, 0.0], len(start))
    return x, np.zeros(len(x)), top


def _scale(value: FloatArray) -> tuple[float, str]:
    greatest = float(np.max(np.abs(value))) if len(value) else 0.0
    return next(((size, prefix) for size, prefix in _PREFIXES if greatest >= 10 * size), (1.0, ""))


def _undated(path: Path) -> dict[str, Any]:
    """Metadata without a date, so that the same input gives the same file."""
    return {"Software": None} if path.suffix.lower() == ".png" else {}
