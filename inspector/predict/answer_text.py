"""All predictions of a request as text: one, or a table; then their jobs, scaling curves and measured values."""

from __future__ import annotations

from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict import job_text, prediction_text, scaling_curve, what_if
from driple.inspector.predict.prediction import Predictions


def lines(found: Predictions) -> list[str]:
    """The text, line by line."""
    if len(found) == 1:
        (one,) = found
        return [*prediction_text.one(one), *job_text.one(one), *prediction_text.measured_lines(one)]
    text = [*what_if.lines(found), *job_text.table(found)]
    curves = found.scaling
    for curve in curves:
        text += ["", *scaling_curve.lines(curve, _title(curve))]
    for one in found:
        text += prediction_text.measured_lines(one)
    return text


def _title(curve: scaling_curve.ScalingCurve) -> str:
    workload = {name: value for name, value in curve.points[0].answer.query.workload.items() if value is not None}
    return f"{workload_label(workload)} on {curve.setting}"
