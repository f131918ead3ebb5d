"""The append-only file: whatever cuts it short or damages it, its whole blocks are read, and nothing else."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.samples_file import (
    NOTES,
    Refused,
    SamplesFile,
    Stream,
    encode_header,
    encode_note,
    encode_rows,
)
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


def encoded(number: int, columns: list[list[int | float | str | None]]) -> bytes:
    return encode_rows(number, STREAMS[number].fields, columns)


def test_a_flipped_bit_costs_the_block_that_it_is_in(whole: Path) -> None:
    data = whole.read_bytes()
    at = len(encode_header(STREAMS, {"asked": {"hz": 100}})) + len(encode_note({"n": 1}))
    for hit, (number, columns) in enumerate(BLOCKS):
        length = len(encoded(number, columns))
        left = [block for i, block in enumerate(BLOCKS) if i != hit]
        for place in range(at, at + length):
            broken = bytearray(data)
            broken[place] ^= 0x10
            whole.write_bytes(broken)
            file = SamplesFile(whole)
            assert file.damaged == [(at, at + length)]
            assert (file.end, file.note) == (len(data), {"n": 2})
            for stream in (0, 1):
                found = list(file.blocks(stream))
                assert found == [block for owner, block in left if owner == stream]
                assert file.rows[stream] == sum(len(block[0]) for block in found)
        at += length


def test_a_torn_tail_is_no_damage(whole: Path) -> None:
    data = whole.read_bytes()
    for tail in (encoded(*BLOCKS[0])[:-1], b"blk:", bytes(200_000), b"blk:" * 100):
        whole.write_bytes(data + tail)
        file = SamplesFile(whole)
        assert (file.end, file.damaged, file.rows) == (len(data), [], [5, 1])


def test_whole_blocks_are_found_behind_much_damage(tmp_path: Path) -> None:
    """Wherever the marker lies in the pieces in which it is looked for, and after markers that mean nothing."""
    path = tmp_path / "x.samples"
    header, parts = encode_header(STREAMS, {}), [encoded(*block) for block in BLOCKS]
    for length in (1, 3, *range((1 << 16) - 4, (1 << 16) + 4), 300_000):
        for rubbish in (bytes(length), (b"blk:" + bytes(40_000)) * (length // 40_000) + b"x"):
            path.write_bytes(header + parts[0] + rubbish + parts[1] + rubbish + parts[2])
            file = SamplesFile(path)
            assert sum(end - start for start, end in file.damaged) == 2 * len(rubbish)
            assert len(file.damaged) == 2
            assert file.rows == [5, 1]
            assert list(file.blocks(0)) == [BLOCKS[0][1], BLOCKS[2][1]]


def test_old_blocks_in_a_damaged_place_do_not_turn_time_back(tmp_path: Path) -> None:
    path = tmp_path / "x.samples"
    first, other, last = [encoded(*block) for block in BLOCKS]
    path.write_bytes(encode_header(STREAMS, {}) + first + last + b"damage" + first + other)
    file = SamplesFile(path)
    assert list(file.blocks(0)) == [BLOCKS[0][1], BLOCKS[2][1]]
    assert list(file.blocks(1)) == [BLOCKS[1][1]]
    assert [end - start for start, end in file.damaged] == [len(b"damage" + first)]


def test_a_damaged_length_does_not_cost_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.samples"
    block = bytearray(encoded(*BLOCKS[0]))
    block[12:16] = (1 << 26).to_bytes(4, "little")
    with path.open("wb") as stream:
        stream.write(encode_header(STREAMS, {}) + block + encoded(*BLOCKS[1]))
        stream.truncate(1 << 27)  # a hole, which takes no room on the disk
    tracemalloc.start()
    try:
        assert SamplesFile(path).rows == [0, 1]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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
