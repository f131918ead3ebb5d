"""Reads trace files of the sampler, and named columns of other Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, CorruptRun, shown
from driple.contracts.formats.dataset import MEASURED, SIMULATED
from driple.contracts.formats.trace import (
    COUNTER,
    METADATA_KEY,
    NS_PER_PERCENT,
    SIMULATED_KEY,
    TIME,
    TRACE_COLUMNS,
)
from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.traces.load_run import device_periods, read_parquet, trace_metadata
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.series import LEVEL, Series


def read_trace(given: TraceInput) -> Source:
    """All columns of a trace, counters as rates; of another Parquet file the named columns. Raises BadInput."""
    path, time, values, counters = given.path, given.time, given.values, given.counters
    try:
        table = read_parquet(path)
        ours = METADATA_KEY.encode() in (table.schema.metadata or {}) and "t_mono_ns" in table.column_names
        metadata = trace_metadata(path, table) if ours else None
    except CorruptRun as error:
        raise BadInput(str(error)) from None
    known = {column.name: column for column in TRACE_COLUMNS}
    if metadata is None and time is None:
        raise BadInput(
            f"{path}: Parquet, but not a trace of Driple; name its columns with --time, --value and --counter "
            f"(it has {', '.join(table.column_names)})"
        )
    time = time or "t_mono_ns"
    t = table.column(_present(path, table, time)).combine_chunks().to_numpy(zero_copy_only=False)
    t_s = _floats(path, time, t) / (1e9 if time.endswith("_ns") else 1.0)
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
            _floats(path, name, value)
            found.append(_rate(name, t_s[there], value, unit, (metadata or {}).get("processors")))
        else:
            kind = BUSY if unit == "%" else LEVEL
            found.append(Series(name, t_s[there], _floats(path, name, value), unit, kind, device_s=devices.get(name)))
    kind, notes = "driple trace" if metadata else "Parquet", tuple(_quality(metadata or {}))
    return Source(kind, tuple(found), notes=notes, provenance=_provenance(metadata))


def _rate(name: str, t_s: Any, value: Any, unit: str, processors: Any) -> Series:
    if unit == "ns":
        limit = processors * 1e9 if isinstance(processors, int) and processors > 0 else None
        found = rate(t_s, value, limit_per_s=limit)
        share = found.per_s / NS_PER_PERCENT
        return Series(name.replace("_ns", "_pct"), found.t_s, share, "%", BUSY, found.refresh.period_s, found.flags)
    found = rate(t_s, value)
    kind = NETWORK if unit in ("B", "packets") else LEVEL
    return Series(name, found.t_s, found.per_s, f"{unit or '1'}/s", kind, found.refresh.period_s, found.flags)


def _provenance(metadata: dict[str, Any] | None) -> str | None:
    return None if metadata is None else SIMULATED if metadata.get(SIMULATED_KEY) else MEASURED


def _base(name: str, known: Any) -> str:
    """The declared column: `nic_tx_bytes` for `nic_tx_bytes_1` of a second interface."""
    stem, _, last = name.rpartition("_")
    return stem if last.isdigit() and stem in known else name


def _present(path: Path, table: Any, name: str) -> str:
    if name not in table.column_names:
        raise BadInput(f"{path}: no column {shown(name)} (it has {', '.join(table.column_names)})")
    return name


def _floats(path: Path, name: str, value: Any) -> Any:
    try:
        return value.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{path}: column {shown(name)} does not hold numbers") from None


def _quality(metadata: dict[str, Any]) -> list[str]:
    loop = metadata.get("loop", {})
    lines = []
    if isinstance(loop, dict) and "ticks" in loop:
        late = (loop.get("lateness_us") or {}).get("p99")
        lines.append(
            f"sampler: every {loop.get('asked_period_ms')} ms, {loop['ticks']} ticks, {loop.get('missed_ticks')} missed"
            + (f", 99 % late by at most {late / 1e3:.2g} ms" if isinstance(late, (int, float)) else "")
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


READER = Reader(lambda given: given.start[:4] == b"PAR1", read_trace)
