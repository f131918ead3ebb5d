"""Makes the Parquet files of a samples file, at a clean stop or later from what a killed sampler left."""

from __future__ import annotations

import heapq
import json
import os
from operator import itemgetter
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence

from driple.agents.parquet import Cell, Field, ParquetWriter
from driple.agents.samples import SamplesFile
from driple.agents.writer import DiskFull, lock
from driple.contracts.errors import BadInput
from driple.contracts.rundir import replacing
from driple.contracts.trace import METADATA_KEY, SCHEMA_VERSION

GROUP_ROWS = 8192
TRACE = "trace"
SUFFIX = ".samples"

Row = Sequence[Cell]


def table_path(out: Path, table: str) -> Path:
    """Where a table of the trace `out` goes: the trace itself, `x.flows.parquet` beside `x.parquet`."""
    return out if table == TRACE else out.with_name(f"{out.stem}.{table}{out.suffix}")


def seal_left(samples: Path) -> Dict[Path, int]:
    """Seals what a sampler left that is gone; as `seal`, and refuses the file of one that still runs."""
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
    """Writes the tables of a samples file beside it and then removes it.

    Args:
        samples: the append-only file; it ends for us at its last whole block.
        out: the Parquet file of the trace; by default the name that the sampler was given.

    Returns:
        Rows of each file written.

    Raises:
        BadInput: it is no samples file, or the result cannot be written. The samples file then stays.
    """
    if out is None:
        if samples.suffix != SUFFIX:
            raise BadInput(f"{samples}: expected a name that ends in {SUFFIX}")
        out = samples.with_suffix("")
    source = SamplesFile(samples)
    clean = bool(source.note.get("clean_stop"))
    about = {"schema_version": SCHEMA_VERSION, **source.about, **source.note, "clean_stop": clean}
    metadata = {METADATA_KEY: json.dumps(about)}
    written: Dict[Path, int] = {}
    for table in dict.fromkeys(stream.table for stream in source.streams):
        path = table_path(out, table)
        try:
            written[path] = _write_table(source, table, path, metadata)
        except OSError as error:
            raise DiskFull(f"{path}: {error.strerror}") from None
    samples.unlink()
    return written


def _write_table(source: SamplesFile, table: str, path: Path, metadata: Dict[str, str]) -> int:
    numbers = [number for number, stream in enumerate(source.streams) if stream.table == table]
    fields = list(dict.fromkeys(field for number in numbers for field in source.streams[number].fields))
    numbers = [number for number in numbers if source.rows[number]] or numbers[:1]
    count = 0
    with replacing(path, "wb") as stream:
        writer = ParquetWriter(stream, fields)  # type: ignore[arg-type]
        for rows in _groups(_merged(source, numbers, fields)):
            writer.write_group(list(zip(*rows)))
            count += len(rows)
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


def _groups(rows: Iterable[Row]) -> Iterator[List[Row]]:
    group: List[Row] = []
    for row in rows:
        group.append(row)
        if len(group) == GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group
