"""Pictures of predictions: the burst pattern of a single one, a comparison of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

from driple.contracts.errors import BadInput
from driple.contracts.metrics import AMOUNT, BURST, GPU, IDLE, NET_RX, NET_TX, RESOURCES, burst_target
from driple.contracts.run_dir import replacing
from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict.job_text import plan_line
from driple.inspector.predict.novelty import FAR
from driple.inspector.predict.number_format import figures, quantity
from driple.inspector.predict.plot_style import COLOURS, bare, drawn, provenance
from driple.inspector.predict.prediction import Prediction, Predictions
from driple.inspector.predict.prediction_text import processor_name, resource_name
from driple.inspector.predict.what_if import TITLES, common_label, coordinate, varied
from driple.inspector.time.step_distribution import LEVEL

CYCLES = 3
"""Cycles of the slowest resource in the picture of one prediction."""
SPAN = 20.0
"""Ratio of largest to smallest from which a panel is logarithmic, so that small bars stay visible."""
MOST = 1000
"""Bursts drawn at most."""
Series: TypeAlias = tuple[str, list[Prediction]]
Value: TypeAlias = Callable[[Prediction], tuple[float, float, float]]
"""Value, least and greatest; three times the same where there is no range."""


def draw(path: Path, answers: Sequence[Prediction]) -> None:
    """Writes the picture in the format of the file name: scaling curves, jobs, a comparison, or a single pattern.

    Raises:
        BadInput: it cannot be written, or the format is unknown.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    kind = path.suffix.lstrip(".").lower() or "png"
    figure = _kind(answers)(pyplot, answers)
    known = figure.canvas.get_supported_filetypes()
    try:
        if kind not in known:
            raise BadInput(f"--plot {path}: no format {kind!r} (known: {', '.join(sorted(known))})")
        with replacing(path, "wb") as stream:
            figure.savefig(stream, format=kind, dpi=110)
    except OSError as error:
        raise BadInput(f"--plot {path}: {error.strerror}") from None
    finally:
        pyplot.close(figure)


def _kind(answers: Sequence[Prediction]) -> Callable[[Any, Sequence[Prediction]], Any]:
    """What draws these answers."""
    from driple.inspector.predict import job_plot, scaling_plot

    if isinstance(answers, Predictions) and answers.scaling:
        return scaling_plot.figure
    if len(answers) > 1 and any(one.job is not None for one in answers):
        return job_plot.figure
    return _patterns if len(answers) == 1 else _comparison


def _patterns(pyplot: Any, answers: Sequence[Prediction]) -> Any:
    """A row per resource of the only answer: bursts and idle time in turn."""
    (answer,) = answers
    known = [one for one in RESOURCES if not any(math.isnan(value) for value in _bib(answer, one))]
    rows = max(len(known), 1)
    size = 10, 1 + 1.5 * rows
    figure, axes = pyplot.subplots(rows, 1, figsize=size, sharex=True, layout="constrained", squeeze=False)
    longest = max((sum(_bib(answer, one)[:2]) for one in known), default=0.0)
    end = CYCLES * longest if longest > 0 else 1.0
    for axis, resource, colour in zip(axes[:, 0], known, COLOURS, strict=False):
        burst, idle, level = _bib(answer, resource)
        scale, unit = (1e6, "MB/s") if resource.amount_unit == "B/s" else (1.0, resource.amount_unit)
        count = math.ceil(end / (burst + idle) - 1e-9) if burst + idle > 0 else 0
        spans = [(number * (burst + idle), burst) for number in range(min(count, MOST))]
        axis.broken_barh(spans, (0, level / scale), color=colour, alpha=0.85)
        axis.set_ylim(0, 1.25 * level / scale if level > 0 else 1.0)
        axis.set_ylabel(unit, fontsize=9)
        name, height = resource_name(resource, answer.on_cpu), quantity(level, resource.amount_unit)
        title = f"{name}: {quantity(burst, 's')} burst, {quantity(idle, 's')} idle, {height}"
        axis.set_title(title, loc="left", fontsize=9)
        bare(axis)
    axes[-1, 0].set_xlim(0, end)
    axes[-1, 0].set_xlabel("seconds (when in a step each resource begins is not predicted)", fontsize=9)
    where = f"{workload_label(answer.query.workload)} on {answer.query.setting}, {answer.role}"
    title = f"predicted: {where}{provenance([answer])}"
    if answer.job is not None:
        title += f"\n{plan_line(answer.job.plan)}: {quantity(answer.job.total_s, 'time')}"
        title += "" if answer.job.cost is None else f", cost {figures(answer.job.cost)}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _comparison(pyplot: Any, answers: Sequence[Prediction]) -> Any:
    """Four panels over one axis; further axes are lines or bars beside each other."""
    axes_varied = varied(answers) or ["setting"]
    across = "batch_size" if "batch_size" in axes_varied else axes_varied[0]
    series = _series(answers, [axis for axis in axes_varied if axis != across])
    processor = processor_name(answers)
    panels: tuple[tuple[str, Value], ...] = (
        (f"step time [s]; whiskers: {_whiskers(answers)}", _step),
        ("examples/s of the job", _rate),
        (f"{processor}: share of the time in bursts [%]", _busy),
        ("network, both ways: mean rate [MB/s]", _traffic),
    )
    figure, places = pyplot.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    ticks = list(dict.fromkeys(coordinate(one, across) for one in answers))
    if across == "batch_size":
        ticks.sort(key=lambda text: int(text) if text.isdigit() else 0)
    for axis, (title, of) in zip(places.ravel(), panels, strict=True):
        _panel(axis, series, ticks, across, of)
        axis.set_title(title, loc="left", fontsize=10)
        bare(axis)
    handles, labels = places[0, 0].get_legend_handles_labels()
    if len(series) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(series), 4), frameon=False, fontsize=9)
    title = f"predicted: {common_label(answers, axes_varied, ', ')}{provenance(answers)}"
    if any(_far(one) for one in answers):
        title += "\nhollow: far outside the training data"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _panel(axis: Any, series: Sequence[Series], ticks: Sequence[str], across: str, of: Value) -> None:
    lines = across == "batch_size"
    sizes = [value for _, members in series for value in (of(one)[0] for one in members) if value > 0]
    wide = bool(sizes) and max(sizes) > SPAN * min(sizes)
    width = 0.8 / len(series)
    for number, (label, members) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        members = sorted(members, key=lambda one: ticks.index(coordinate(one, across)))
        offset = 0.0 if lines else (number - (len(series) - 1) / 2) * width
        x = [ticks.index(coordinate(one, across)) + offset for one in members]
        y, least, greatest = zip(*(of(one) for one in members), strict=True)
        faces = ["white" if _far(one) else colour for one in members]
        if lines:
            axis.plot(x, y, color=colour, linewidth=1.6, label=label)
        if lines or wide:  # a bar has no honest foot on a logarithmic scale
            axis.scatter(
                x, y, s=40, c=faces, edgecolors=colour, linewidths=1.4, zorder=3, label=None if lines else label
            )
        else:
            axis.bar(x, y, width * 0.92, label=label, color=faces, edgecolor=colour, linewidth=1.4)
        if least != greatest:
            axis.vlines(x, least, greatest, color=colour if lines or wide else COLOURS[1], linewidth=1.4, zorder=2)
        if not lines:
            for place, value, top in zip(x, y, greatest, strict=True):
                if not math.isnan(value):
                    axis.annotate(
                        figures(value), (place, top), (0, 5), textcoords="offset points", ha="center", fontsize=8
                    )
    axis.margins(x=0.12 if wide else 0.05, y=0.15)
    if wide:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks(range(len(ticks)), ticks, fontsize=9)
    axis.set_xlabel("batch size of a worker" if lines else TITLES[across], fontsize=9)


def _series(answers: Sequence[Prediction], axes: Sequence[str]) -> list[Series]:
    found: dict[str, list[Prediction]] = {}
    for one in answers:
        found.setdefault(", ".join(coordinate(one, axis) for axis in axes) or "predicted", []).append(one)
    return list(found.items())


def _bib(answer: Prediction, resource: Any) -> tuple[float, float, float]:
    burst, idle, amount = (answer.value(burst_target(resource, metric)) for metric in (BURST, IDLE, AMOUNT))
    return burst, idle, amount


def _step(answer: Prediction) -> tuple[float, float, float]:
    cycle, step, ends = answer.cycle, answer.step_time_s, answer.step_interval()
    if step is None:
        return _alone(math.nan)
    if ends is None and cycle is not None:
        return step, cycle.least, cycle.greatest
    return step, *drawn(ends, step)


def _whiskers(answers: Sequence[Prediction]) -> str:
    """What the whiskers of step times are."""
    kinds = {f"{100 * LEVEL:.0f} % interval": True, "burst + idle by resource": False}
    return " or ".join(name for name, told in kinds.items() if any((one.step is not None) is told for one in answers))


def _rate(answer: Prediction) -> tuple[float, float, float]:
    return _alone(answer.examples_per_s or math.nan)


def _busy(answer: Prediction) -> tuple[float, float, float]:
    burst, idle, _ = _bib(answer, GPU)
    return _alone(100 * burst / (burst + idle) if burst + idle > 0 else math.nan)


def _traffic(answer: Prediction) -> tuple[float, float, float]:
    total = 0.0
    for resource in (NET_TX, NET_RX):
        burst, idle, level = _bib(answer, resource)
        total += level * burst / (burst + idle) if burst + idle > 0 else math.nan
    return _alone(total / 1e6)


def _alone(value: float) -> tuple[float, float, float]:
    return value, value, value


def _far(answer: Prediction) -> bool:
    return answer.novelty is not None and answer.novelty.verdict == FAR
