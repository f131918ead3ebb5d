"""An evaluation as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driple.contracts.formats.dataset import is_simulated
from driple.contracts.formats.inspector import ERRORS_FILE, PREDICTIONS_FILE, REPORT_FILE, REPORT_TEXT_FILE
from driple.contracts.metrics import TARGET_OF_COLUMN
from driple.contracts.run_dir import replacing
from driple.inspector.evaluation.error_table import INSPECTOR, Evaluation
from driple.inspector.evaluation.scores import OVERALL

_LEARNED = "Ridge, trees and base models were fitted to these rows too: compare on the test side."
_MEASURES = (("NRMSE", "nrmse", True), ("MAPE", "mape", True), ("R2", "r2", False))


def to_text(found: Evaluation) -> str:
    """The table for a terminal: NRMSE of all predictors, MAPE and R2 of the inspector; test side.

    A single test workload has no range, so no NRMSE and no R2: then the table has the MAPE of all predictors.
    """
    of_side = found.scores["test"]
    names = found.predictors
    tables = [dict(of_side[name].rows()) for name in names]
    field = "nrmse" if any(score.nrmse is not None for score in tables[0].values()) else "mape"
    known = [target for target, score in tables[0].items() if score.mape is not None or score.nrmse is not None]
    width = max(map(len, map(_label, known)), default=0)
    cells = [max(9, len(name)) for name in names]
    head = "".join(f"  {name:>{size}}" for name, size in zip(names, cells, strict=True))
    more = f"  {'MAPE %':>9}  {'R2':>6}" if field == "nrmse" else ""
    lines = [_title(found), "", f"{'':<{width}}  {field.upper() + ' %':<{len(head) - 2}}{more}".rstrip()]
    lines.append(f"{'':<{width}}{head}{f'  {INSPECTOR:>9}' if more else ''}")
    previous = ""
    for target in known:
        if target == OVERALL or (target not in found.columns and previous in found.columns):
            lines.append("")
        previous = target
        values = [_share(getattr(table[target], field)) for table in tables]
        row = "".join(f"  {value:>{size}}" for value, size in zip(values, cells, strict=True))
        score = tables[0][target]
        more = f"  {_share(score.mape):>9}  {_plain(score.r2):>6}" if field == "nrmse" else ""
        lines.append(f"{_label(target):<{width}}{row}{more}")
    unknown = [target for target in found.columns if target not in known]
    if unknown:
        lines += ["", f"no value in the test rows: {', '.join(unknown)}"]
    if found.calibration is not None:
        lines += ["", _calibration(found.calibration)]
    zeros = of_side[INSPECTOR].overall.zeros
    if zeros:
        lines += ["", f"{zeros} true values are 0 and not in the MAPE"]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)


def to_markdown(found: Evaluation, about: Mapping[str, Any]) -> str:
    """All errors of both sides, for report.md."""
    simulated = f" ({found.provenance})" if is_simulated(found.provenance) else ""
    lines = [f"# Inspector of {found.setting}, {found.role}{simulated}", "", _title(found), ""]
    lines += [f"- {note}" for note in found.notes]
    lines += [f"- {name.replace('_', ' ')}: {_shown(value)}" for name, value in about.items() if value is not None]
    if found.calibration is not None:
        lines += ["", _calibration(found.calibration)]
    for side, of_side in found.scores.items():
        for title, field, percent in _MEASURES:
            lines += ["", f"## {title}{' %' if percent else ''}, {side} side", ""]
            lines += [_LEARNED, ""] if side == "val" else []
            lines.append("| target | " + " | ".join(found.predictors) + " |")
            lines.append("|---|" + "---:|" * len(found.predictors))
            tables = [dict(of_side[name].rows()) for name in found.predictors]
            for target in tables[0]:
                values = [getattr(table[target], field) for table in tables]
                row = " | ".join(_share(value) if percent else _plain(value) for value in values)
                lines.append(f"| {_label(target)} | {row} |")
    lines += ["", "docs/guides/metrics.md defines the scores.", ""]
    return "\n".join(lines)


def to_json(found: Evaluation, about: Mapping[str, Any]) -> dict[str, Any]:
    """The same for programs."""
    return {
        **{name: getattr(found, name) for name in ("setting", "role", "split", "provenance")},
        "workloads": dict(found.counts),
        "notes": list(found.notes),
        **about,
        "calibration": found.calibration,
        "errors": found.rows(),
    }


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """errors.csv; an unknown score is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def predictions_csv(found: Evaluation) -> str:
    """Every test workload: true and predicted values, and the spread where there is one."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    facts = ("model", "family", "batch_size", "optimiser", "update")
    kinds = ["true", *found.predictors, *(["spread"] if found.spread is not None else [])]
    writer.writerow(["provenance", *facts, "run_ids", "target", *kinds])
    tables = [found.truth, *found.predicted.values(), *([found.spread] if found.spread is not None else [])]
    for number, item in enumerate(found.items):
        for column, target in enumerate(found.columns):
            values = [float(table[number, column]) for table in tables]
            if not math.isnan(values[0]):
                known = [item.workload.get(name) for name in facts]
                cells = ["" if math.isnan(value) else value for value in values]
                writer.writerow([found.provenance, *known, " ".join(item.run_ids), target, *cells])
    return stream.getvalue()


def write_reports(folder: Path, found: Evaluation, about: Mapping[str, Any]) -> None:
    """report.md, report.json, errors.csv and predictions.csv."""
    files = {
        REPORT_TEXT_FILE: to_markdown(found, about),
        REPORT_FILE: json.dumps(to_json(found, about), indent=1, allow_nan=False) + "\n",
        ERRORS_FILE: to_csv([{"provenance": found.provenance, **row} for row in found.rows()]),
        PREDICTIONS_FILE: predictions_csv(found),
    }
    for name, content in files.items():
        with replacing(folder / name) as stream:
            stream.write(content)


def _title(found: Evaluation) -> str:
    counts = found.counts
    tested = f"{counts['test']} test workload{'s' if counts['test'] > 1 else ''}"
    rows = f"{found.setting}, {found.role}, {found.provenance} rows, {found.split} split"
    return f"{rows}: errors on {tested} ({counts['train']} train, {counts['val']} val)"


def _calibration(found: Mapping[str, float | int | None]) -> str:
    return (
        f"spread of the ensemble: {_share(found['within_1'])} % of the test values within 1 (68 would be right), "
        f"{_share(found['within_2'])} % within 2 (95)"
    )


def _label(target: str) -> str:
    if target == OVERALL:
        return "mean of all"
    return target if target in TARGET_OF_COLUMN else f"mean of {target}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}" if abs(value) < 100 else f"{100 * value:.2g}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_shown(item)}" for name, item in value.items() if item is not None)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
