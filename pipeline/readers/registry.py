"""The trace readers. To add one, write a module with a `READER` and add it to READERS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.pipeline.readers import chrome_trace, csv_columns, driple_trace, nvidia_smi, run_directory
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.traces.series import Series

READERS: tuple[Reader, ...] = (
    run_directory.READER,
    driple_trace.READER,
    chrome_trace.READER,
    nvidia_smi.READER,
    csv_columns.READER,
)
"""The first reader that recognises an input reads it. The last two read a table; the last one takes any text."""


def read_source(path: Path, time: str | None, values: Sequence[str], counters: Sequence[str]) -> Source:
    """Reads a file or a run directory, with the columns that the user named. Raises BadInput with the reason."""
    given = TraceInput(path, time, values, counters)
    source = next(reader for reader in READERS if reader.recognises(given)).read(given)
    if not source.series:
        raise BadInput(f"{path}: read as {source.what}, but no column has values")
    return replace(source, series=_renamed(source))


def _renamed(source: Source) -> tuple[Series, ...]:
    """The series with unique names: a header may contain a name twice."""
    seen: dict[str, int] = {}
    found = []
    for series in source.series:
        seen[series.name] = seen.get(series.name, 0) + 1
        found.append(series if seen[series.name] == 1 else replace(series, name=f"{series.name}#{seen[series.name]}"))
    return tuple(found)
