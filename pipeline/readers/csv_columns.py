"""Reads any CSV by the names of its columns."""

from __future__ import annotations

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.readers.text_table import Table, numbers, seconds, unit_of
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.series import LEVEL, FloatArray, Series

_TIME_NAMES = ("t_s", "time", "timestamp", "time_s", "t", "ts", "date", "datetime", "epoch", "seconds")
_RATES = {"kb/s": 1e3, "rxkb/s": 1024.0, "txkb/s": 1024.0, "mb/s": 1e6, "gb/s": 1e9, "b/s": 1.0, "bytes/s": 1.0}
_BUSY_WORDS = ("%", "util", "busy", "pct", "percent")
_NETWORK_WORDS = ("rx", "tx", "net", "bytes", "recv", "sent", "traffic")


def _read(given: TraceInput) -> Source:
    table, values, counters = given.table, given.values, given.counters
    time = given.time if given.time is not None else _time_column(table)
    t_s = seconds(table.path, time, table.column(time))
    named = [*values, *counters]
    if not named:
        at = table.position(time)
        named = [name for i, name in enumerate(table.header) if i != at and _numeric(table, name)]
        if not named:
            raise BadInput(f"{table.path}: no column of numbers besides {shown(time)}")
        values = named
    found = [_value(table, name, t_s) for name in values] + [_counter(table, name, t_s) for name in counters]
    notes = (f"{table.left_out} lines not part of the table, left out",) if table.left_out else ()
    return Source("CSV", tuple(found), notes=notes)


def _time_column(table: Table) -> str:
    folded = {name.strip().lower().replace(" ", "_").partition("[")[0].rstrip("_"): name for name in table.header}
    for name in _TIME_NAMES:
        if name in folded:
            return folded[name]
    raise BadInput(f"{table.path}: which column is time? name it with --time (it has {', '.join(table.header)})")


def _numeric(table: Table, name: str) -> bool:
    return bool(np.isfinite(numbers(table.column(name)[:50])).any())


def _numbers(table: Table, name: str) -> FloatArray:
    value = numbers(table.column(name))
    if not np.isfinite(value).any():
        first = next((cell for cell in table.column(name) if cell), "")
        raise BadInput(f"{table.path}: column {shown(name)} has no numbers: {shown(first)}")
    return value


def _value(table: Table, name: str, t_s: FloatArray) -> Series:
    value = _numbers(table, name)
    low = name.lower()
    unit = unit_of(table.column(name)) or ("%" if any(word in low for word in _BUSY_WORDS) else "")
    scale = _RATES.get(low, _RATES.get(unit.lower()))
    if scale is not None:
        return Series(name, t_s, value * scale, "B/s", NETWORK)
    return Series(name, t_s, value, unit, BUSY if unit == "%" else LEVEL)


def _counter(table: Table, name: str, t_s: FloatArray) -> Series:
    found = rate(t_s, _numbers(table, name))
    network = any(word in name.lower() for word in _NETWORK_WORDS)
    unit = "B/s" if network else "1/s"
    kind = NETWORK if network else LEVEL
    return Series(name, found.t_s, found.per_s, unit, kind, found.refresh.period_s, found.flags)


READER = Reader(lambda _: True, _read)
