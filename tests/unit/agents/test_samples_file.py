"""The append-only file: whatever cuts it short, whole blocks before the cut are read, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.agents.parquet import Field
from driple.agents.samples import NOTES, Refused, SamplesFile, Stream, encode_header, encode_note, encode_rows
from driple.contracts.errors import BadInput

FIELDS = (Field("t_mono_ns", "int64", True), Field("a", "uint64"), Field("b", "float32"), Field("s", "string"))
STREAMS = [Stream("trace", FIELDS), Stream("trace", FIELDS[:2])]
BLOCKS: list[tuple[int, list[list[int | float | str | None]]]] = [
    (0, [[1, 2], [10, None], [None, None], ["x", "é"]]),
    (1, [[3], [2**64 - 1]]),
    (0, [[4, 5, 6], [7, 8, 9], [0.5, None, 1.5], [None, None, ""]]),
]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    parts = [encode_header(STREAMS, {"asked": {"hz": 100}}), encode_note({"n": 1})]
    parts += [encode_rows(number, STREAMS[number].fields, columns) for number, columns in BLOCKS]
    path = tmp_path / "x.samples"
    path.write_bytes(b"".join([*parts, encode_note({"n": 2})]))
    return path


def test_it_gives_back_what_was_put_in(whole: Path) -> None:
    file = SamplesFile(whole)
    assert file.streams == tuple(STREAMS)
    assert (file.about, file.note) == ({"asked": {"hz": 100}}, {"n": 2})
    assert file.rows == [5, 1]
    assert file.end == whole.stat().st_size
    for number in (0, 1):
        assert list(file.blocks(number)) == [columns for owner, columns in BLOCKS if owner == number]


def test_a_cut_anywhere_loses_only_what_is_behind_it(whole: Path) -> None:
    data = whole.read_bytes()
    start = len(encode_header(STREAMS, {"asked": {"hz": 100}}))
    seen = []
    for length in range(start, len(data)):
        whole.write_bytes(data[:length])
        file = SamplesFile(whole)
        assert file.end <= length
        seen.append(sum(len(columns[0]) for number in (0, 1) for columns in file.blocks(number)))
        assert seen[-1] == sum(file.rows)
    assert seen == sorted(seen)
    assert sorted(set(seen)) == [0, 2, 3, 6]


def test_a_flipped_bit_ends_the_file_there(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    full = SamplesFile(whole).rows
    start = len(encode_header(STREAMS, {"asked": {"hz": 100}}))
    for at in range(start, len(data) - len(encode_note({"n": 2}))):
        broken = data.copy()
        broken[at] ^= 0x10
        whole.write_bytes(broken)
        assert SamplesFile(whole).rows != full


def test_what_does_not_fit_its_type_is_a_null_and_counted(tmp_path: Path) -> None:
    refused = Refused()
    columns: list[list[int | float | str | None]] = [
        [1, 2, 3, 4],
        [-1, 5, 2**64, None],
        [1.0, None, 2.0, 3.0],
        [None] * 4,
    ]
    path = tmp_path / "x.samples"
    path.write_bytes(encode_header(STREAMS, {}) + encode_rows(0, FIELDS, columns, refused))
    (block,) = SamplesFile(path).blocks(0)
    assert block[1] == [None, 5, None, None]
    assert refused.count == 2


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"driple-samples 2\n{}\n", b"driple-samples 1\n{", b"driple-samples 1\n{}\n"]
)
def test_what_is_no_samples_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.samples"
    path.write_bytes(data)
    with pytest.raises(BadInput, match="x.samples"):
        SamplesFile(path)
    with pytest.raises(BadInput, match="No such file"):
        SamplesFile(tmp_path / "none.samples")


def test_stream_numbers_leave_room_for_notes() -> None:
    assert NOTES == 255
