"""Sealing: late samples find their place, every table its file, and nothing is lost when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sampler import parquet_writer
from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.samples_file import Stream
from driple.agents.sampler.samples_writer import DiskFull, SampleWriter
from driple.agents.sampler.seal import seal
from driple.contracts.errors import BadInput
from driple.contracts.formats.trace import METADATA_KEY, SCHEMA_VERSION

pq = pytest.importorskip("pyarrow.parquet")

TIME = Field("t_mono_ns", "int64", True)
GPU = Field("gpu_util_pct", "float32")
NIC = Field("nic_tx_bytes", "uint64")
STREAMS = [
    Stream("trace", (TIME, NIC, GPU)),
    Stream("trace", (TIME, GPU)),
    Stream("flows", (TIME, Field("remote_address", "string"))),
]


def left(out: Path, note: dict[str, Any] | None = None) -> Path:
    """A samples file as a sampler leaves it."""
    writer = SampleWriter(out, STREAMS, {"asked": {"hz": 100}})
    writer.add(0, [[10, 20], [1, 2], [None, None]])
    writer.flush()
    writer.add(1, [[5, 12, 17], [0.0, 50.0, 100.0]])
    writer.add(0, [[30], [3], [None]])
    writer.add(2, [[10, 10], ["10.0.0.1", "10.0.0.2"]])
    if note is not None:
        writer.note(note)
    writer.flush()
    writer.close()
    return writer.path


def metadata(trace: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(pq.read_schema(trace).metadata[METADATA_KEY.encode()])
    return about


def test_late_samples_are_merged_by_their_own_times(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    samples = left(out, {"loop": {}, "clean_stop": True})
    assert seal(samples) == {out: 6, tmp_path / "x.flows.parquet": 2}
    assert not samples.exists()
    table = pq.read_table(out)
    assert table.column_names == ["t_mono_ns", "nic_tx_bytes", "gpu_util_pct"]
    assert table["t_mono_ns"].to_pylist() == [5, 10, 12, 17, 20, 30]
    assert table["nic_tx_bytes"].to_pylist() == [None, 1, None, None, 2, 3]
    assert table["gpu_util_pct"].to_pylist() == [0.0, None, 50.0, 100.0, None, None]
    assert pq.read_table(tmp_path / "x.flows.parquet")["remote_address"].to_pylist() == ["10.0.0.1", "10.0.0.2"]
    about = json.loads(table.schema.metadata[METADATA_KEY.encode()])
    assert about == {"schema_version": SCHEMA_VERSION, "asked": {"hz": 100}, "loop": {}, "clean_stop": True}


def test_what_a_killed_sampler_left_says_that_it_was_not_a_clean_stop(tmp_path: Path) -> None:
    samples = left(tmp_path / "x.parquet")
    with samples.open("ab") as stream:
        stream.write(b"blk:\0half a block")
    seal(samples)
    about = json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[METADATA_KEY.encode()])
    assert about["clean_stop"] is False
    assert pq.read_metadata(tmp_path / "x.parquet").num_rows == 6


def test_row_groups_bound_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 4)
    out = tmp_path / "x.parquet"
    seal(left(out))
    file = pq.ParquetFile(out)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 2]
    file.close()


def test_a_seal_that_does_not_fit_keeps_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = left(tmp_path / "x.parquet")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("driple.agents.sampler.seal.ParquetWriter.close", full)
    with pytest.raises(DiskFull, match="No space left"):
        seal(samples)
    assert [path.name for path in tmp_path.iterdir()] == [samples.name]


def test_another_name_needs_an_answer_where_to(tmp_path: Path) -> None:
    other = left(tmp_path / "x.parquet").rename(tmp_path / "other")
    with pytest.raises(BadInput, match="ends in .samples"):
        seal(other)
    assert seal(other, tmp_path / "y.parquet")[tmp_path / "y.parquet"] == 6


def test_damage_in_the_middle_is_said_and_the_samples_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "x.parquet"
    samples = left(out, {"loop": {}, "clean_stop": True})
    data = bytearray(samples.read_bytes())
    second = data.index(b"blk:", data.index(b"blk:") + 1)
    third = data.index(b"blk:", second + 1)
    data[second + 20] ^= 1  # in the late samples
    samples.write_bytes(data)
    for _ in range(2):  # what is kept can be sealed again
        caplog.clear()
        assert seal(samples) == {out: 3, tmp_path / "x.flows.parquet": 2}
        assert pq.read_table(out)["t_mono_ns"].to_pylist() == [10, 20, 30]
        assert metadata(out)["damaged_bytes"] == third - second
        assert metadata(out)["clean_stop"] is True
        assert samples.read_bytes() == data
        (message,) = caplog.messages
        assert (
            message == f"{samples}: {third - second} bytes are damaged and were left out of the trace; the file is kept"
        )


def test_a_torn_tail_is_sealed_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples = left(tmp_path / "x.parquet")
    samples.write_bytes(samples.read_bytes()[:-1])
    seal(samples)
    assert not samples.exists()
    assert caplog.messages == []
    assert "damaged_bytes" not in metadata(tmp_path / "x.parquet")
