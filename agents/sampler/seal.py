"""Makes the Parquet files of a samples file, at a clean stop or later from what a killed sampler left."""

from __future__ import annotations

import heapq
import json
import logging
import os
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from driple.agents.sampler.parquet_writer import Cell, Field, ParquetWriter
from driple.agents.sampler.quality import Reads, SourceQuality
from driple.agents.sampler.samples_file import SamplesFile, Stream
from driple.agents.sampler.samples_writer import DiskFull, lock
from driple.agents.sampler.ticker import SECOND_NS
from driple.contracts.errors import BadInput
from driple.contracts.formats.trace import METADATA_KEY, SCHEMA_VERSION
from driple.contracts.run_dir import replacing

log = logging.getLogger(__name__)

TRACE = "trace"
SUFFIX = ".samples"

_QUALITY = ("seconds", "first_mono_ns", "last_mono_ns", "loop", "sources", "tables")

Row = Sequence[Cell]


def table_path(out: Path, table: str) -> Path:
    """Where a table of the trace `out` goes: the trace itself, `x.flows.parquet` beside `x.parquet`."""
    return out if table == TRACE else out.with_name(f"{out.stem}.{table}{out.suffix}")


def seal_left(samples: Path) -> Dict[Path, int]:
    """As `seal`, for the file of a sampler that was killed; refuses the file of a running one."""
    try:
        fd = os.open(samples, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"{samples}: {error.strerror}") from None
    try:
        if not lock(fd):
            raise BadInput(f"{samples}: a sampler is still writing it; stop that one, and it seals the trace itself")
        return seal(samples)
    finally:
        os.close(fd)


def seal(samples: Path, out: Optional[Path] = None) -> Dict[Path, int]:
    """Writes the tables of a samples file, then removes it unless a part is damaged. Returns the rows of each file.

    `out` is the trace's Parquet file; by default the name that the sampler was given. Raises BadInput if it is not a
    samples file or the result cannot be written; the samples file then stays.
    """
    if out is None:
        if samples.suffix != SUFFIX:
            raise BadInput(f"{samples}: expected a name that ends in {SUFFIX}")
        out = samples.with_suffix("")
    source = SamplesFile(samples)
    clean = bool(source.note.get("clean_stop"))
    about = {"schema_version": SCHEMA_VERSION, **source.about, **source.note, "clean_stop": clean}
    if not clean:
        about.update(_quality_from_rows(source))
    damaged = sum(end - start for start, end in source.damaged)
    if damaged:
        about["damaged_bytes"] = damaged
    metadata = {METADATA_KEY: json.dumps(about)}
    written: Dict[Path, int] = {}
    for table in dict.fromkeys(stream.table for stream in source.streams):
        path = table_path(out, table)
        try:
            written[path] = _write_table(source, table, path, metadata)
        except OSError as error:
            raise DiskFull(f"{path}: {error.strerror}") from None
    if damaged:
        log.warning("%s: %d bytes are damaged and were left out of the trace; the file is kept", samples, damaged)
    else:
        samples.unlink()
    return written


def _quality_from_rows(source: SamplesFile) -> Dict[str, Any]:
    """Quality recomputed from the rows: without a clean stop the last note is older than they are.

    What rows do not contain is null, and the last note goes under `last_note`.
    """
    note, streams = source.note, source.streams
    period_ns = _period_ns(source)
    if not period_ns:
        return {}
    ticks = Reads(period_ns)
    sources = {
        name: _SourceRows(said, streams[0].fields, streams[number], period_ns, ticks)
        for number, (name, said) in enumerate(note.get("sources", {}).items(), 1)
    }
    first: Optional[int] = None
    last: Optional[int] = None
    columns: Any
    for columns in source.blocks(0):
        first, last = columns[0][0] if first is None else first, columns[0][-1]
        ticks.observe(columns[0])
        for rows in sources.values():
            rows.observe(columns)
    for number, rows in enumerate(sources.values(), 1):
        for columns in source.blocks(number) if source.rows[number] else ():
            rows.quality.observe_late([(t, values) for t, *values in zip(*columns)])
    span_ns = 0 if first is None or last is None else last - first
    tables = {
        name: {**_names(said), "asked_period_ms": said.get("asked_period_ms"), "rows": source.rows[number]}
        for number, (name, said) in enumerate(note.get("tables", {}).items(), 1 + len(sources))
    }
    return {
        "quality_from": "rows",
        "seconds": round(span_ns / SECOND_NS, 3),
        "first_mono_ns": first,
        "last_mono_ns": last,
        "loop": {**_names(note.get("loop", {})), **_loop(source.rows[0], span_ns, period_ns)},
        "sources": {name: rows.summary() for name, rows in sources.items()},
        "tables": tables,
        "last_note": {key: note[key] for key in _QUALITY if key in note},
    }


def _period_ns(source: SamplesFile) -> int:
    """Of the ticks as it was asked for; 0 if the file does not say."""
    hz: float = source.about.get("asked", {}).get("hz", 0)
    # The noted one is rounded, and over a day that adds up to many ticks.
    noted_ms: float = source.note.get("loop", {}).get("asked_period_ms", 0)
    return round(SECOND_NS / hz) if hz else round(noted_ms * 1e6)


def _loop(ticks: int, span_ns: int, period_ns: int) -> Dict[str, Any]:
    # By the number of the last tick alone: between two ticks a late one would look like a miss.
    missed = max(0, round(span_ns / period_ns) + 1 - ticks) if ticks else 0
    return {
        "asked_period_ms": round(period_ns / 1e6, 4),
        "ticks": ticks,
        "missed_ticks": missed,
        "missed_pct": round(100.0 * missed / max(1, ticks + missed), 4),
    }


def _names(said: Mapping[str, Any]) -> Dict[str, Any]:
    """A note without its figures: text stays valid, figures do not."""
    return {key: value if isinstance(value, str) else None for key, value in said.items()}


class _SourceRows:
    """Quality of one source, recomputed from the rows."""

    def __init__(
        self, said: Mapping[str, Any], fields: Sequence[Field], own: Stream, tick_ns: int, ticks: Reads
    ) -> None:
        """`said` is of the last note, `fields` are of the ticks, and `own` is the source's stream of late samples."""
        self._said = said
        self._at = fields.index(own.fields[1])
        self._end = self._at + len(own.fields) - 1
        period_ticks = max(1, round(said["asked_period_ms"] * 1e6 / tick_ns))
        self._slow = period_ticks > 1
        self._seen = False
        reads = Reads(tick_ns * period_ticks) if self._slow else ticks
        self.quality = SourceQuality([field.name for field in own.fields[1:]], reads)

    def observe(self, columns: Sequence[Sequence[Any]]) -> None:
        times, own = columns[0], columns[self._at : self._end]
        if self._slow:
            # On other ticks it was not read, and its nulls there are none.
            marks = [i for i, cells in enumerate(zip(*own)) if cells.count(None) < len(own)]
            times = [times[i] for i in marks]
            own = [[column[i] for i in marks] for column in own]
            self.quality.reads.observe(times)
        self._seen = self._seen or bool(times)
        self.quality.observe(times, own)

    def summary(self) -> Dict[str, Any]:
        found = {**_names(self._said), **self.quality.summary()}
        if not self._seen:
            # Reads that brought nothing cannot be told from no reads.
            found.update(reads=None, gaps=None)
            for column in found["columns"].values():
                column["nulls"] = None
        return found


def _write_table(source: SamplesFile, table: str, path: Path, metadata: Dict[str, str]) -> int:
    numbers = [number for number, stream in enumerate(source.streams) if stream.table == table]
    fields = list(dict.fromkeys(field for number in numbers for field in source.streams[number].fields))
    numbers = [number for number in numbers if source.rows[number]] or numbers[:1]
    with replacing(path, "wb") as stream:
        writer = ParquetWriter(stream, fields)  # type: ignore[arg-type]
        count = writer.write_rows(_merged(source, numbers, fields))
        writer.close(metadata)
    return count


def _merged(source: SamplesFile, numbers: Sequence[int], fields: Sequence[Field]) -> Iterable[Row]:
    """Rows of several streams in the order of their times, as wide as the table."""
    streams = [_rows(source, number, fields) for number in numbers]
    return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=itemgetter(0))


def _rows(source: SamplesFile, number: int, fields: Sequence[Field]) -> Iterator[Row]:
    own = source.streams[number].fields
    if list(own) == list(fields):
        for columns in source.blocks(number):
            yield from zip(*columns)
        return
    places = [fields.index(field) for field in own]
    for columns in source.blocks(number):
        for cells in zip(*columns):
            row: List[Cell] = [None] * len(fields)
            for place, cell in zip(places, cells):
                row[place] = cell
            yield row
