"""Our own traces: a single trace file, or a run directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, CorruptRun, shown
from driple.contracts.formats.trace import COUNTER, METADATA_KEY, NS_PER_PERCENT, SCHEMA_VERSION, TIME, TRACE_COLUMNS
from driple.contracts.metrics import BUSY, NETWORK, RESOURCES
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s
from driple.pipeline.readers.base import Source
from driple.pipeline.traces.load_run import device_periods, load_run
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.series import LEVEL, Series


def read_run(folder: Path) -> Source:
    """The resources of every task of a run, in its measured part.

    Raises:
        BadInput: it cannot be used; the message says why.
    """
    try:
        run = load_run(folder)
    except CorruptRun as error:
        raise BadInput(str(error)) from None
    found, steps, notes = [], {}, []
    for task, trace in run.tasks.items():
        step_s = step_time_s(run, task)
        for key, series in resource_series(run, task).items():
            if series is None:
                continue
            name = f"{task}/{key}"
            found.append(replace(series, name=name))
            if step_s is not None:
                steps[name] = step_s
        if trace.steps is not None and step_s is not None:
            notes.append(f"{task}: {len(trace.steps.step)} measured steps of {step_s:.4g} s")
        notes += [f"{task}: {flag}" for flag in trace.flags]
    missing = [r.title for r in RESOURCES if not any(s.name.endswith(f"/{r.key}") for s in found)]
    if missing:
        notes.append(f"not measured: {', '.join(missing)}")
    return Source(f"run {run.manifest.run_id}", tuple(found), steps, tuple(notes))


def read_trace(path: Path, values: list[str], counters: list[str], time: str | None) -> Source:
    """Every column of a trace, counters as rates; of another Parquet file the columns that are named.

    Raises:
        BadInput: it is no Parquet, or not what it is taken for.
    """
    table = _table(path)
    metadata = _metadata(path, table)
    known = {column.name: column for column in TRACE_COLUMNS}
    if metadata is None and time is None:
        raise BadInput(
            f"{path}: Parquet, but none of our traces; name its columns with --time, --value and --counter "
            f"(it has {', '.join(table.column_names)})"
        )
    time = time or "t_mono_ns"
    t = _cells(path, table, time)
    t_s = t / (1e9 if time.endswith("_ns") else 1.0)
    t_s = t_s - (t_s[0] if len(t_s) else 0.0)
    devices = device_periods(metadata)
    names = [*values, *counters] or [name for name in table.column_names if name != time]
    found = []
    for name in names:
        declared = known.get(_base(name, known))
        if name not in (*values, *counters) and (declared is None or declared.kind == TIME):
            continue
        column = table.column(_present(path, table, name)).combine_chunks()
        if column.null_count == len(column):
            continue
        there = column.is_valid().to_numpy(zero_copy_only=False)
        value = column.drop_null().to_numpy(zero_copy_only=False)
        unit = declared.unit if declared else ""
        if name in counters or (declared is not None and declared.kind == COUNTER and name not in values):
            found.append(_rate(name, t_s[there], value, unit, (metadata or {}).get("processors")))
        else:
            kind = BUSY if unit == "%" else LEVEL
            found.append(Series(name, t_s[there], value.astype(np.float64), unit, kind, device_s=devices.get(name)))
    return Source("driple trace" if metadata else "Parquet", tuple(found), notes=tuple(_quality(metadata or {})))


def _rate(name: str, t_s: Any, value: Any, unit: str, processors: Any) -> Series:
    if unit == "ns":
        limit = processors * 1e9 if isinstance(processors, int) and processors > 0 else None
        found = rate(t_s, value, limit_per_s=limit)
        share = found.per_s / NS_PER_PERCENT
        return Series(name.replace("_ns", "_pct"), found.t_s, share, "%", BUSY, found.refresh.period_s, found.flags)
    found = rate(t_s, value)
    kind = NETWORK if unit in ("B", "packets") else LEVEL
    return Series(name, found.t_s, found.per_s, f"{unit or '1'}/s", kind, found.refresh.period_s, found.flags)


def _base(name: str, known: Any) -> str:
    """`nic_tx_bytes_1`, of a second interface, is a column like `nic_tx_bytes`."""
    stem, _, last = name.rpartition("_")
    return stem if last.isdigit() and stem in known else name


def _table(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path, use_threads=False)
        table.column_names  # noqa: B018 - raises here if a name is not UTF-8
        return table
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or 'not readable as Parquet (cut short?)'}") from None
    except (pyarrow.ArrowException, ValueError):
        raise BadInput(f"{path}: not readable as Parquet (cut short?)") from None


def _metadata(path: Path, table: Any) -> dict[str, Any] | None:
    text = (table.schema.metadata or {}).get(METADATA_KEY.encode())
    if text is None or "t_mono_ns" not in table.column_names:
        return None
    try:
        value = json.loads(text)
        version = value.get("schema_version")
    except (ValueError, AttributeError):
        raise BadInput(f"{path}: its metadata {METADATA_KEY!r} is no JSON object") from None
    if version != SCHEMA_VERSION:
        raise BadInput(f"{path}: schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
    assert isinstance(value, dict)
    return value


def _present(path: Path, table: Any, name: str) -> str:
    if name not in table.column_names:
        raise BadInput(f"{path}: no column {shown(name)} (it has {', '.join(table.column_names)})")
    return name


def _cells(path: Path, table: Any, name: str) -> Any:
    column = table.column(_present(path, table, name)).combine_chunks()
    try:
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{path}: column {shown(name)} has no times in numbers") from None


def _quality(metadata: dict[str, Any]) -> list[str]:
    """How well it was sampled, in lines."""
    loop = metadata.get("loop", {})
    lines = []
    if isinstance(loop, dict) and "ticks" in loop:
        late = (loop.get("lateness_us") or {}).get("p99")
        lines.append(
            f"sampler: every {loop.get('asked_period_ms')} ms, {loop['ticks']} ticks, {loop.get('missed_ticks')} missed"
            + (f", 99 % late by no more than {late / 1e3:.2g} ms" if isinstance(late, (int, float)) else "")
        )
    sources = metadata.get("sources", {})
    for name, source in sources.items() if isinstance(sources, dict) else ():
        real = (source.get("real_period_ms") or {}).get("median")
        held = [f"{c} every {q['refresh_ms']:g} ms" for c, q in source.get("columns", {}).items() if q.get("held")]
        gaps = source.get("gaps")
        if real is not None:
            lines.append(
                f"{name}: read every {real:.4g} ms"
                + (f", {gaps} gaps" if gaps else "")
                + (f", refreshed more slowly: {', '.join(held)}" if held else "")
            )
    return lines
