"""Converts the steps of a task from JSON lines to Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Iterator, List

from driple.agents.sampler.parquet_writer import Cell, Field, ParquetWriter
from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.trace import GAUGE, METADATA_KEY, SCHEMA_VERSION, STEP_COLUMNS
from driple.contracts.protocol.requests import StepsAnswer
from driple.contracts.run_dir import replacing

_MEASURED = ("start_mono_ns", "end_mono_ns")
_FIELDS = [Field.of(column) for column in STEP_COLUMNS]
_NULLABLE = tuple(column.name for column in STEP_COLUMNS if column.kind == GAUGE)
_START, _END = (next(i for i, field in enumerate(_FIELDS) if field.name == name) for name in _MEASURED)


def steps_to_parquet(source: Path, target: Path, warmup: int = 0) -> StepsAnswer:
    """Converts JSON lines to a table; ignores an incomplete last line. Raises BadInput if a line is not a step.

    `warmup` is the number of steps before the measured part.
    """
    measured: List[Any] = [None, None]

    def noted(rows: Iterator[List[Cell]]) -> Iterator[List[Cell]]:
        for number, row in enumerate(rows):
            if number == warmup:
                measured[0] = row[_START]
            if number >= warmup:
                measured[1] = row[_END]
            yield row

    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as stream, replacing(target, "wb", follow=False) as out:
        writer = ParquetWriter(out, _FIELDS)  # type: ignore[arg-type]
        rows = writer.write_rows(noted(_rows(source, stream)))
        writer.close({METADATA_KEY: json.dumps({"schema_version": SCHEMA_VERSION})})
    return StepsAnswer(rows=rows, measured_start_mono_ns=measured[0], measured_end_mono_ns=measured[1])


def _rows(source: Path, stream: BinaryIO) -> Iterator[List[Cell]]:
    for number, line in enumerate(stream, 1):
        if not line.endswith(b"\n"):
            return
        try:
            step = json.loads(line)
            yield [_cell(step.get(field.name), field) for field in _FIELDS]
        except (ValueError, AttributeError, RecursionError):
            raise BadInput(f"{source}:{number}: expected a step, got {shown(line)}") from None


def _cell(value: object, field: Field) -> Cell:
    if value is None and field.name in _NULLABLE:
        return None
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if type(value) is float and field.type.startswith("float"):
        return value
    raise ValueError(value)
