"""Writes series and their bursts as a Chrome trace for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.bursts.burst_metrics import Analysis
from driple.pipeline.traces.series import Series


def write_perfetto(path: Path, title: str, analysed: Sequence[tuple[Series, Analysis]]) -> None:
    """Writes a counter track for each series, and its spans as slices of a thread. Raises BadInput."""
    try:
        with replacing(path) as stream:
            json.dump({"displayTimeUnit": "ms", "traceEvents": events(title, analysed)}, stream, allow_nan=False)
    except OSError as error:
        raise BadInput(f"--perfetto {path}: {error.strerror}") from None


def events(title: str, analysed: Sequence[tuple[Series, Analysis]]) -> list[dict[str, Any]]:
    """The events, with times in microseconds from the start of the earliest series."""
    origin = min((float(a.t_s[0]) for _, a in analysed if len(a.t_s)), default=0.0)
    found: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}}]
    for tid, (series, analysis) in enumerate(analysed, start=1):
        named = {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": series.name}}
        found.append(named)
        # A sample stands for the time before it, a counter of a Chrome trace for the time after.
        starts = [float(analysis.t_s[0]) - origin if len(analysis.t_s) else 0.0, *(analysis.t_s - origin).tolist()]
        unit = series.unit or "value"
        found += [
            {"ph": "C", "pid": 1, "name": series.name, "ts": round(t * 1e6, 3), "args": {unit: value}}
            for t, value in zip(starts, analysis.value.tolist(), strict=False)
        ]
        spans = analysis.spans
        if spans is None:
            continue
        rows = zip(
            spans.start_s.tolist(), spans.duration_s.tolist(), spans.high.tolist(), spans.whole.tolist(), strict=True
        )
        for start, duration, high, whole in rows:
            name = ("burst" if high else "idle") if whole else ("burst (cut)" if high else "idle (cut)")
            event = {"ph": "X", "pid": 1, "tid": tid, "cat": "bib", "name": name}
            found.append({**event, "ts": round(max(0.0, start - origin) * 1e6, 3), "dur": round(duration * 1e6, 3)})
    return found
