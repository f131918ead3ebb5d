"""nvidia-smi: CSV of `--query-gpu=...`, with or without units, and `dmon -o T`. Rows of GPUs are interleaved."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.two_means import split_sorted
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.readers.text_table import Table, numbers, seconds, unit_of
from driple.pipeline.traces.series import LEVEL, FloatArray, Series

_WHO = ("index", "gpu", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
_TIME = ("timestamp", "time")
_PER_SECOND = {"KB/s": 1024.0, "MB/s": 1024.0**2, "B/s": 1.0}
_RESOLUTION_S = 0.0005
"""Half of the last digit of a timestamp."""
_APART = 3.0
"""The time between two ticks is at least this many times that between two rows of a tick."""
_DMON = {"sm", "mem", "enc", "dec"}
_NOT_A_SERIES = {*_TIME, "date", "name", "gpu_name", "driver_version", "pstate", "count", *_WHO}
_FIELD = re.compile(r"(utilization|memory|clocks|power|temperature|pcie|fan|enc|dec)[.\w]*", re.IGNORECASE)


def _recognises(given: TraceInput) -> bool:
    """Whether it is a table with a timestamp and fields of nvidia-smi's query language."""
    if given.names_columns:
        return False
    names = [_field(each) for each in given.table.header]
    queried = any("." in each and _FIELD.match(each) for each in names)
    return ("timestamp" in names and queried) or {"time", "gpu", "sm"} <= set(names)


def _read(given: TraceInput) -> Source:
    table = given.table
    names = [_field(each) for each in table.header]
    time = next(each for each in _TIME if each in names)
    t_s = seconds(table.path, time, table.column(table.header[names.index(time)]))
    gpus = _gpus(table, names, t_s)
    found, left_out = [], []
    for gpu in sorted(set(gpus) - {""}, key=_natural):
        rows = np.flatnonzero(np.array(gpus) == gpu)
        prefix = f"gpu{gpu}." if gpu.isdigit() else f"{gpu}."
        for at, (name, head) in enumerate(zip(names, table.header, strict=True)):
            if name in _NOT_A_SERIES:
                continue
            cells = [table.rows[row][at] for row in rows]
            value = numbers(cells)
            if np.isnan(value).all():
                left_out.append(prefix + name)
                continue
            unit = _unit(head) or unit_of(cells)
            if unit in _PER_SECOND:
                value, unit = value * _PER_SECOND[unit], "B/s"
            found.append(Series(prefix + name, t_s[rows], value, unit, _kind(name, unit)))
    count = len(set(gpus) - {""})
    notes = [f"{count} GPU{'s' if count > 1 else ''}, {len(table.rows)} lines"]
    if "" in gpus:
        notes.append(f"{gpus.count('')} lines of ticks without the row of a GPU, left out")
    if table.left_out:
        notes.append(
            f"{table.left_out} line{'s' if table.left_out > 1 else ''} cut short or not part of the table, left out"
        )
    if left_out:
        notes.append(f"without values: {', '.join(left_out)}")
    return Source("nvidia-smi CSV", tuple(found), notes=tuple(notes))


def _gpus(table: Table, names: list[str], t_s: FloatArray) -> list[str]:
    """The GPU of each row; an empty text if it is unknown.

    Without a column that identifies the GPU, the times do: nvidia-smi writes one row for each GPU in the order of their
    indices, a few milliseconds apart, and then waits for the rest of the loop period.
    """
    who = next((each for each in _WHO if each in names), None)
    if who is not None:
        return table.column(table.header[names.index(who)])
    gaps = np.nan_to_num(np.diff(t_s))
    starts, count = _ticks(gaps)
    if count == 1:
        if len(gaps) and np.mean(gaps <= 0.0) > 0.2:
            raise BadInput(
                f"{table.path}: rows of several GPUs, but no column identifies the GPU; record with"
                " --query-gpu=timestamp,index,..."
            )
        return ["0"] * len(table.rows)
    sizes = np.diff(np.r_[starts, len(t_s)])
    known = sizes == count
    known[-1] |= sizes[-1] < count  # cut at its end, so the first rows are those of the first GPUs
    nth = np.arange(len(t_s)) - np.repeat(starts, sizes)
    return [str(n) for n in np.where(np.repeat(known, sizes), nth.astype(str), "").tolist()]


def _ticks(gaps: FloatArray) -> tuple[NDArray[np.int64], int]:
    """The first row of each tick, and the rows of a tick; 1 if the times do not show several."""
    every = np.arange(len(gaps) + 1)
    if len(gaps) < 3:
        return every, 1
    split = split_sorted(np.sort(np.log(np.minimum(gaps, np.quantile(gaps, 0.98)).clip(0.0) + _RESOLUTION_S)))
    if split is None:
        return every, 1
    between = np.log(gaps.clip(0.0) + _RESOLUTION_S) > split.threshold
    within_s, between_s = np.quantile(gaps[~between], 0.95), np.quantile(gaps[between], 0.05)
    starts = np.r_[0, np.flatnonzero(between) + 1]
    sizes = np.bincount(np.diff(np.r_[starts, len(every)]))
    count = int(np.argmax(sizes))
    regular = sizes[count] >= len(starts) / 3 and sizes[count + 1 :].sum() <= 0.05 * len(starts)
    # Times that are equal throughout a tick have too coarse a resolution: a tick may be several.
    if not regular or within_s <= 0.0 or between_s < _APART * within_s:
        return every, 1
    return starts, count


def _field(head: str) -> str:
    """`utilization.gpu [%]` as `utilization.gpu`."""
    return head.partition("[")[0].strip().lower()


def _unit(head: str) -> str:
    return head.partition("[")[2].rstrip("] ").strip()


def _kind(name: str, unit: str) -> str:
    if name.startswith("utilization.") or name in _DMON:
        return BUSY
    return NETWORK if unit == "B/s" else LEVEL


def _natural(gpu: str) -> tuple[int, str]:
    return (int(gpu), "") if gpu.isdigit() else (1 << 30, gpu)


READER = Reader(_recognises, _read)
