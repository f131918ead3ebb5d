"""Which reader a file is for, by what is in it and not by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.pipeline.readers.base import Source
from driple.pipeline.readers.chrome_trace import read_chrome
from driple.pipeline.readers.csv_columns import read_plain
from driple.pipeline.readers.driple_trace import read_run, read_trace
from driple.pipeline.readers.nvidia_smi import is_nvidia, read_nvidia
from driple.pipeline.readers.text_table import read_table, read_text
from driple.pipeline.traces.series import Series


def read_source(path: Path, time: str | None, values: Sequence[str], counters: Sequence[str]) -> Source:
    """Reads anything that we read.

    Args:
        path: a file, or a run directory.
        time: the column of time, where the user names it.
        values: columns of rates and levels, likewise.
        counters: columns that only grow, likewise.

    Raises:
        BadInput: it cannot be read, with the reason.
    """
    source = _read(path, time, list(values), list(counters))
    if not source.series:
        raise BadInput(f"{path}: read as {source.what}, and no column has any values")
    return replace(source, series=_renamed(source))


def _read(path: Path, time: str | None, values: list[str], counters: list[str]) -> Source:
    named = bool(time or values or counters)
    if path.is_dir():
        if named:
            raise BadInput(f"{path}: --time, --value and --counter are for files, not for a run")
        return read_run(path)
    start = _start(path)
    if start[:4] == b"PAR1":
        return read_trace(path, values, counters, time)
    if start[:2] == b"\x1f\x8b" or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        if named:
            raise BadInput(f"{path}: --time, --value and --counter are for tables, not for a Chrome trace")
        return read_chrome(path)
    table = read_table(path, read_text(path))
    if not named and is_nvidia(table):
        return read_nvidia(table)
    return read_plain(table, time, values, counters)


def _start(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: not a regular file")
        with path.open("rb") as stream:
            start = stream.read(64)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if not start.strip():
        raise BadInput(f"{path}: empty")
    return start


def _renamed(source: Source) -> tuple[Series, ...]:
    """Names once each: a header may have one twice."""
    seen: dict[str, int] = {}
    found = []
    for series in source.series:
        seen[series.name] = seen.get(series.name, 0) + 1
        found.append(series if seen[series.name] == 1 else replace(series, name=f"{series.name}#{seen[series.name]}"))
    return tuple(found)
