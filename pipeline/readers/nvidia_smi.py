"""nvidia-smi: CSV of `--query-gpu=...`, headers and cells with units or without; `dmon -o T`; GPUs interleaved."""

from __future__ import annotations

import re

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.readers.base import Source
from driple.pipeline.readers.text_table import Table, numbers, seconds, unit_of
from driple.pipeline.traces.series import BUSY, LEVEL, NETWORK, FloatArray, Series

_WHO = ("index", "gpu", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
_TIME = ("timestamp", "time")
_PER_SECOND = {"KB/s": 1024.0, "MB/s": 1024.0**2, "B/s": 1.0}
_DMON = {"sm", "mem", "enc", "dec"}
_NOT_A_SERIES = {*_TIME, "date", "name", "gpu_name", "driver_version", "pstate", "count", *_WHO}
_FIELD = re.compile(r"(utilization|memory|clocks|power|temperature|pcie|fan|enc|dec)[.\w]*", re.IGNORECASE)


def is_nvidia(table: Table) -> bool:
    """Whether a table is of nvidia-smi: a timestamp, and fields of its query language."""
    names = [_field(each) for each in table.header]
    queried = any("." in each and _FIELD.match(each) for each in names)
    return ("timestamp" in names and queried) or {"time", "gpu", "sm"} <= set(names)


def read_nvidia(table: Table) -> Source:
    """A series of every numeric column of every GPU.

    Raises:
        BadInput: several GPUs, and nothing that says which row is of which.
    """
    names = [_field(each) for each in table.header]
    time = next(each for each in _TIME if each in names)
    t_s = seconds(table.path, time, table.column(table.header[names.index(time)]))
    gpus = _gpus(table, names, t_s)
    found, left_out = [], []
    for gpu in sorted(set(gpus), key=_natural):
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
    notes = [f"{len(set(gpus))} GPU{'s' if len(set(gpus)) > 1 else ''}, {len(table.rows)} lines"]
    if table.left_out:
        notes.append(
            f"{table.left_out} line{'s' if table.left_out > 1 else ''} cut short or not of the table, left out"
        )
    if left_out:
        notes.append(f"without values: {', '.join(left_out)}")
    return Source("nvidia-smi CSV", tuple(found), notes=tuple(notes))


def _gpus(table: Table, names: list[str], t_s: FloatArray) -> list[str]:
    who = next((each for each in _WHO if each in names), None)
    if who is not None:
        return table.column(table.header[names.index(who)])
    step = np.diff(t_s)
    if len(step) and np.mean(step <= 0.0) > 0.2:
        raise BadInput(
            f"{table.path}: rows of several GPUs and no column says whose; record with --query-gpu=timestamp,index,..."
        )
    return ["0"] * len(table.rows)


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
