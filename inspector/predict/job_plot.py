"""The training jobs of several predictions as a picture: total time and cost, with deadline and budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from driple.inspector.predict.job_answer import ranked
from driple.inspector.predict.job_text import percent, plan_line
from driple.inspector.predict.number_format import NONE, figures, quantity, scale_of
from driple.inspector.predict.plot_style import COLOURS, LIMIT_COLOUR, bare, drawn, provenance
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.what_if import TITLES, common_label, coordinate, varied
from driple.inspector.time.step_distribution import LEVEL
from driple.inspector.time.training_plan import JobEstimate

ROW = 0.42
"""Height of a bar and its space, in inches."""


class _Panel(NamedTuple):
    title: str
    name: str
    """Of the value, in JobEstimate."""
    scale: float
    unit: str
    limit: float | None
    limit_name: str


def figure(pyplot: Any, answers: Sequence[Prediction]) -> Any:
    """A bar per job, the best at the top if there is a deadline or a budget."""
    known = [one for one in answers if one.job is not None]
    plan = _job(known[0]).plan
    ordered = ranked(known) if plan.limited else known
    jobs = [_job(one) for one in ordered]
    size, unit = scale_of(max(job.total_s for job in jobs), "time")
    panels = [_Panel(f"total time [{unit}]", "total_s", size, "time", plan.deadline_s, "deadline")]
    if all(job.cost is not None for job in jobs):
        panels.append(_Panel("cost", "cost", 1.0, "", plan.budget, "budget"))
    height = 1.7 + ROW * len(jobs)
    made, axes = pyplot.subplots(1, len(panels), figsize=(11, height), sharey=True, layout="constrained", squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        _bars(axis, jobs, panel)
    names = varied(answers) or ["setting"]
    labels = [_label(one, names) for one in ordered]
    axes[0, 0].set_yticks(range(len(jobs)), labels, fontsize=9)
    axes[0, 0].invert_yaxis()
    title = f"predicted: {common_label(ordered, names, ', ')}{provenance(ordered)}\n{plan_line(plan)}"
    if any(job.distribution is not None for job in jobs):
        title += f"; whiskers: {100 * LEVEL:.0f} % interval"
    if any(job.probability is not None for job in jobs):
        title += "; in %: probability to meet the limits"
    made.suptitle(title, x=0.01, ha="left", fontsize=11)
    return made


def _bars(axis: Any, jobs: Sequence[JobEstimate], panel: _Panel) -> None:
    values = [getattr(job, panel.name) / panel.scale for job in jobs]
    places = range(len(jobs))
    # Hollow: a limit is exceeded.
    faces = ["white" if job.missed else COLOURS[0] for job in jobs]
    axis.barh(places, values, 0.62, color=faces, edgecolor=COLOURS[0], linewidth=1.4)
    ends = [drawn(job.interval(panel.name, LEVEL), getattr(job, panel.name)) for job in jobs]
    for place, value, (least, greatest) in zip(places, values, ends, strict=True):
        if least != greatest:
            axis.hlines(place, least / panel.scale, greatest / panel.scale, color=COLOURS[1], linewidth=2)
        top = max(value, greatest / panel.scale)
        note, where = _note(jobs[place], panel), {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axis.annotate(note, (top, place), **where, fontsize=8, bbox=behind)
    if panel.limit is not None:
        axis.axvline(panel.limit / panel.scale, color=LIMIT_COLOUR, linestyle="--", linewidth=1.4)
        shown = quantity(panel.limit, panel.unit).rstrip()
        axis.set_xlabel(f"dashed: {panel.limit_name} {shown}; hollow: it does not meet the limits", fontsize=9)
    axis.set_title(panel.title, loc="left", fontsize=10)
    axis.margins(x=0.22)
    axis.set_xlim(left=0)
    bare(axis)
    axis.grid(axis="x", color="#e4e4e4", linewidth=0.7)
    axis.grid(visible=False, axis="y")


def _note(job: JobEstimate, panel: _Panel) -> str:
    found = figures(getattr(job, panel.name) / panel.scale)
    sure = panel.name == "total_s" and job.probability is not None
    return f"{found}, {percent(job.probability or 0.0)}" if sure else found


def _label(answer: Prediction, axes: Sequence[str]) -> str:
    parts = [(axis, coordinate(answer, axis)) for axis in axes]
    return ", ".join(f"{TITLES[axis]} {value}" if axis == "batch_size" else value for axis, value in parts) or NONE


def _job(answer: Prediction) -> JobEstimate:
    assert answer.job is not None
    return answer.job
