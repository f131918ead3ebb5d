"""The small Parquet writer, read back with the real thing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driple.agents.sampler.parquet_writer import TYPECODES, Field, ParquetWriter

pq = pytest.importorskip("pyarrow.parquet")

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}


def round_trip(
    fields: list[Field], groups: list[list[list[Any]]], metadata: dict[str, str] | None = None, *, packed: bool = False
) -> Any:
    stream = io.BytesIO()
    writer = ParquetWriter(stream, fields, packed=packed)
    for columns in groups:
        writer.write_group(columns)
    writer.close(metadata or {})
    stream.seek(0)
    return pq.ParquetFile(stream)


def test_every_type_is_known_to_the_test() -> None:
    assert set(VALUES) == set(TYPECODES)


@settings(max_examples=30)
@given(st.sampled_from(["int32", "int64", "uint32", "uint64", "float64"]), st.data())
def test_a_packed_file_has_the_same_values(kind: str, data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.lists(VALUES[kind], min_size=1, max_size=50), min_size=1, max_size=3))
    file = round_trip([Field("c", kind, required=True)], [[values] for values in groups], packed=True)
    assert file.read()["c"].to_pylist() == [value for values in groups for value in values]
    chunk = file.metadata.row_group(0).column(0)
    assert (chunk.compression, chunk.encodings[0]) == ("GZIP", "BYTE_STREAM_SPLIT")


@settings(max_examples=50)
@given(st.data())
def test_what_is_written_is_what_pyarrow_reads(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    fields = [Field(f"c{i}", kind, required=data.draw(st.booleans())) for i, kind in enumerate(kinds)]
    groups = []
    for rows in data.draw(st.lists(st.integers(0, 20), max_size=3)):
        groups.append(
            [
                data.draw(
                    st.lists(
                        VALUES[field.type] if field.required else st.none() | VALUES[field.type],
                        min_size=rows,
                        max_size=rows,
                    )
                )
                for field in fields
            ]
        )
    table = round_trip(fields, groups).read()
    assert [str(kind) for kind in table.schema.types] == [_arrow(field.type) for field in fields]
    assert [item.nullable for item in table.schema] == [not field.required for field in fields]
    for i, field in enumerate(fields):
        assert table[field.name].to_pylist() == [value for columns in groups for value in columns[i]]


def _arrow(kind: str) -> str:
    return {"float32": "float", "float64": "double"}.get(kind, kind)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 63, 64, 65, 10_000])
@pytest.mark.parametrize("every", [1, 2, 3, 10, 10**9])
def test_nulls_at_the_edges_of_bytes_and_runs(rows: int, every: int) -> None:
    values = [i if i % every == 0 else None for i in range(rows)]
    file = round_trip([Field("c", "int64")], [[values], [[None] * rows]])
    assert file.read()["c"].to_pylist() == values + [None] * rows


def test_metadata_many_groups_and_many_columns() -> None:
    fields = [Field(f"column_{i}", "int32") for i in range(40)]
    metadata = {"driple": '{"a": "é"}', "empty": "", "long": "x" * 100_000}
    file = round_trip(fields, [[[i, None]] * 40 for i in range(300)], metadata)
    assert file.num_row_groups == 300
    assert file.metadata.num_rows == 600
    assert {key.decode(): value.decode() for key, value in file.metadata.metadata.items()} == metadata
    assert file.read()["column_39"].to_pylist() == [value for i in range(300) for value in (i, None)]


def test_a_file_without_rows_still_has_its_columns() -> None:
    table = round_trip([Field("t", "int64", required=True), Field("s", "string")], []).read()
    assert (table.num_rows, table.column_names) == (0, ["t", "s"])
