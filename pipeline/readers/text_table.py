"""Parses tables in text files: separators, cells with units, and times in many formats."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput, nearest, shown
from driple.pipeline.traces.series import FloatArray

MAX_BYTES = 2 << 30
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[_,]\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_DATES = (
    *("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S"),
    *("%Y-%m-%d %H:%M:%S UTC", "%d/%m/%Y %H:%M:%S"),
)
_TIMES = ("%H:%M:%S.%f", "%H:%M:%S", "%I:%M:%S %p")


@dataclass(frozen=True)
class Table:
    """Columns of text."""

    path: Path
    header: tuple[str, ...]
    rows: list[list[str]]
    """Each as long as the header."""
    left_out: int
    """Number of lines of another length: a truncated last line, comments, repeated headers."""

    def column(self, name: str) -> list[str]:
        """The cells of a column, by its name or by its number from 1. Raises BadInput with the nearest name."""
        at = self.position(name)
        return [row[at] for row in self.rows]

    def position(self, name: str) -> int:
        wanted = _folded(name)
        names = [_folded(each) for each in self.header]
        if wanted in names:
            return names.index(wanted)
        if name.isdigit() and 1 <= int(name) <= len(self.header):
            return int(name) - 1
        guess = nearest(name, self.header)
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise BadInput(f"{self.path}: no column {shown(name)}{hint} (it has {', '.join(self.header)})")


def read_text(path: Path) -> str:
    """The content of a text file in UTF-8 or UTF-16. Raises BadInput if it cannot be read, or is not text."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES >> 30} GB; cut it, or record at a lower rate")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # PowerShell's redirection
        return data.decode("utf-16", errors="replace")
    if b"\x00" in data[:4096]:
        raise BadInput(f"{path}: not text (and not Parquet): not a format that this command reads")
    return data.decode("utf-8-sig", errors="replace")


def read_table(path: Path, text: str) -> Table:
    """A table with a header that shows the separator. Raises BadInput without a header of two columns or rows."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"{path}: empty")
    start = next((i for i, line in enumerate(lines) if not line.startswith(("#", "Linux "))), len(lines))
    if start and lines[0].startswith("#"):
        start = 0  # `sadf -d` and `nvidia-smi dmon` write their header behind a #
    if start == len(lines):
        raise BadInput(f"{path}: no header and no lines")
    head = lines[start].lstrip("# ")
    delimiter = next((each for each in (",", ";", "\t") if each in head), None)
    header, *rows = _cells([head, *lines[start + 1 :]], delimiter)
    if len(header) < 2:
        raise BadInput(f"{path}: no header of two or more columns in its first line")
    kept = [row for row in rows if len(row) == len(header) and row != header and not row[0].startswith("#")]
    if not kept:
        raise BadInput(f"{path}: no line has the {len(header)} columns of its header")
    return Table(path, tuple(header), kept, len(rows) - len(kept))


def _cells(lines: Sequence[str], delimiter: str | None) -> list[list[str]]:
    if delimiter is None:
        return [line.split() for line in lines]
    return [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]


def numbers(cells: Sequence[str]) -> FloatArray:
    """The numbers of cells without their units; NaN if a cell has none: `[N/A]`, `-`, empty."""
    try:
        return np.array(cells, dtype=np.float64)  # the common case, and the fastest
    except ValueError:
        return np.array([number(cell) for cell in cells])


def number(cell: str) -> float:
    """The number that a cell starts with; NaN if there is none."""
    found = _NUMBER.match(cell.strip())
    return float(re.sub("[_,]", "", found.group())) if found else math.nan


def unit_of(cells: Sequence[str]) -> str:
    """The unit after the numbers of cells; empty if there is none."""
    for cell in cells[:100]:
        found = _NUMBER.match(cell.strip())
        if found and (rest := cell.strip()[found.end() :].strip()):
            return rest
    return ""


def seconds(path: Path, name: str, cells: Sequence[str]) -> FloatArray:
    """Times in seconds: numbers (of seconds, or of milli-, micro- or nanoseconds since 1970), or dates.

    A time of day that decreases belongs to the next day. Raises BadInput if the first cell is not a time.
    """
    try:
        value = np.array(cells, dtype=np.float64)
    except ValueError:
        return _dates(path, name, cells)
    first = value[np.isfinite(value)][:1]
    # Seconds since 1970 are below 1e11 until the year 5138; a monotonic clock in ns exceeds it after two minutes.
    scale = next((s for limit, s in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)) if len(first) and first[0] > limit), 1.0)
    suffix = _folded(name).rpartition("_")[2]
    scale = {"ns": 1e9, "us": 1e6, "ms": 1e3}.get(suffix, scale)
    return value / scale


def _dates(path: Path, name: str, cells: Sequence[str]) -> FloatArray:
    first = next((cell for cell in cells if cell.strip()), "")
    form = next((form for form in (*_DATES, *_TIMES) if _parsed(first, form) is not None), None)
    iso = form is None and _iso(first) is not None
    if form is None and not iso:
        raise BadInput(f"{path}: column {shown(name)} has no times: {shown(first)}")
    # The format may vary: a whole second is often written without its fraction.
    others = [form, *(_DATES if form in _DATES else _TIMES)] if form else []
    found = [
        _iso(cell) if iso else next((t for each in others if each and (t := _parsed(cell, each)) is not None), None)
        for cell in cells
    ]
    value = np.array([math.nan if each is None else each for each in found])
    if form in _TIMES:
        back = np.diff(value, prepend=value[:1]) < -43_200
        value = value + 86_400.0 * np.cumsum(back)
    return value


def _parsed(cell: str, form: str) -> float | None:
    try:
        return datetime.strptime(cell.strip(), form).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _iso(cell: str) -> float | None:
    try:
        found = datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _folded(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
