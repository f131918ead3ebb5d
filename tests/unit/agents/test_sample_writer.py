"""Where a trace may be left, and what a full disk leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.samples_file import SamplesFile, Stream
from driple.agents.sampler.samples_writer import DiskFull, SampleWriter, check_out, samples_path
from driple.contracts.errors import BadInput

STREAMS = [Stream("trace", (Field("t_mono_ns", "int64", True), Field("a", "int64")))]


def test_places_that_cannot_hold_a_trace(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        check_out(tmp_path / "none" / "x.parquet")
    with pytest.raises(BadInput, match="expected a file"):
        check_out(tmp_path)
    with pytest.raises(BadInput, match="expected a file"):
        check_out(Path("/dev/full"))
    check_out(tmp_path / "x.parquet")


def test_a_leftover_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    first = SampleWriter(out, STREAMS, {})
    first.add(0, [[1], [2]])
    first.flush()
    with pytest.raises(BadInput, match=r"another sampler is writing .*x\.parquet\.samples"):
        SampleWriter(out, STREAMS, {})
    first.close()
    with pytest.raises(BadInput, match=r"was killed; .*--seal .*x\.parquet\.samples"):
        SampleWriter(out, STREAMS, {})
    assert SamplesFile(first.path).rows == [1]
    first.path.write_text("somebody's notes")
    with pytest.raises(BadInput, match="or remove it"):
        SampleWriter(out, STREAMS, {})


def test_a_leftover_without_rows_blocks_nobody(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    SampleWriter(out, STREAMS, {"much": "longer than what comes"}).close()
    check_out(out)
    again = SampleWriter(out, STREAMS, {})
    again.add(0, [[1], [2]])
    again.flush()
    again.close()
    assert SamplesFile(again.path).rows == [1]


def test_a_name_has_room_for_those_beside_it(tmp_path: Path) -> None:
    from driple.agents.sampler.seal import seal

    for length in (209, 240, 250, 300):
        with pytest.raises(BadInput, match="too long"):
            check_out(tmp_path / ("x" * (length - 8) + ".parquet"))
    out = tmp_path / ("x" * (207 - 8) + ".parquet")
    writer = SampleWriter(out, [*STREAMS, Stream("flows", STREAMS[0].fields)], {})
    writer.add(0, [[1], [2]])
    writer.flush()
    assert seal(writer.path, out)[out] == 1
    writer.close()


def test_rows_are_in_the_file_after_a_flush_and_a_killed_writer_changes_nothing(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path / "x.parquet", STREAMS, {})
    writer.add(0, [[1, 2], [3, None]])
    assert SamplesFile(writer.path).rows == [0]
    writer.flush()
    assert SamplesFile(writer.path).rows == [2]
    writer.close()


def test_nothing_sampled_leaves_nothing(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path / "x.parquet", STREAMS, {})
    writer.discard_if_empty()
    assert list(tmp_path.iterdir()) == []
    writer = SampleWriter(tmp_path / "x.parquet", STREAMS, {})
    writer.add(0, [[1], [2]])
    writer.flush()
    writer.discard_if_empty()
    assert samples_path(tmp_path / "x.parquet").exists()


def test_a_full_disk_keeps_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SampleWriter(tmp_path / "x.parquet", STREAMS, {})
    writer.add(0, [[1], [2]])
    writer.flush()
    real = os.write
    room = [10]

    def write(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken, room[0] = room[0], 0
        return real(fd, bytes(data[:taken]))

    monkeypatch.setattr("driple.agents.sampler.samples_writer.os.write", write)
    writer.add(0, [[2] * 100, [3] * 100])
    with pytest.raises(DiskFull, match="No space left"):
        writer.flush()
    monkeypatch.undo()
    file = SamplesFile(writer.path)
    assert file.rows == [1]
    assert file.end == writer.path.stat().st_size
    writer.close()


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("driple.agents.sampler.samples_writer.os.write", write)
    with pytest.raises(DiskFull):
        SampleWriter(tmp_path / "x.parquet", STREAMS, {})
    assert list(tmp_path.iterdir()) == []
