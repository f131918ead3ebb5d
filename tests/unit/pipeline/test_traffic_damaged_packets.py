"""driple-traffic on a run in which a packet file has a damaged block."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from driple.agents.sampler.parquet_writer import Field, ParquetWriter
from driple.contracts.formats.packets import ACK, PACKET_COLUMNS, SCHEMA_VERSION, TCP, PacketFacts, PacketFlow
from driple.contracts.formats.trace import METADATA_KEY
from driple.contracts.manifest import Manifest
from driple.contracts.protocol.message import encode
from driple.pipeline.cli_traffic import main
from driple.pipeline.readers.packet_file import read_packet_file

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"
GROUPS, ROWS, PAYLOAD = 8, 500, 1000
FRAME = PAYLOAD + 66


def write_packets(path: Path, begin_us: int, *, sends: bool) -> None:
    """One host's view of a stream from 10.0.0.1 to 10.0.0.2 in which nothing is lost."""
    path.parent.mkdir(exist_ok=True)
    flow = PacketFlow(
        sent=sends, protocol=TCP, source="10.0.0.1", source_port=1, destination="10.0.0.2", destination_port=2
    )
    count = GROUPS * ROWS
    facts = PacketFacts(
        schema_version=SCHEMA_VERSION, host=path.stem, interface="eth0", dropped=0, stopped_early=None,
        damaged_bytes=0, first_mono_us=begin_us, last_mono_us=begin_us + 100 * count, snap="headers", flows=(flow,),
    )  # fmt: skip
    rows = [
        (begin_us + 100 * i + i % 7, 0, FRAME, PAYLOAD, 1, PAYLOAD * i, i * 7919 % 100_000, ACK) for i in range(count)
    ]
    with path.open("wb") as stream:
        writer = ParquetWriter(stream, [Field(one.name, one.type, True) for one in PACKET_COLUMNS], packed=True)
        for start in range(0, count, ROWS):
            writer.write_group(list(zip(*rows[start : start + ROWS], strict=True)))
        writer.close({METADATA_KEY: encode(facts)})


@pytest.fixture
def run(checkout: Path, tmp_path: Path) -> Path:
    """A run with the packets of two hosts; the first sends, the second receives."""
    folder = Path(shutil.copytree(checkout / "tests/data/runs" / RUN, tmp_path / "traces" / RUN))
    sender, receiver, *_ = Manifest.read(folder / "run.json").clocks
    times = pq.read_table(folder / "trace/ps-0.parquet", columns=["t_mono_ns"])["t_mono_ns"].to_pylist()
    for host in (sender, receiver):
        write_packets(folder / f"packets/{host}.parquet", times[0] // 1000, sends=host == sender)
    return folder


def damage(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 200] = bytes(200)
    path.write_bytes(bytes(raw))


def shown(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([str(run), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["jobs"][0]
    return found


def test_both_files_whole(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = shown(run, capsys)
    assert (job["bytes"], job["lost_share"], job["notes"]) == (GROUPS * ROWS * FRAME, 0.0, [])


@pytest.mark.parametrize("sends", [True, False])
def test_the_other_end_has_what_a_damaged_file_lost(run: Path, capsys: pytest.CaptureFixture[str], sends: bool) -> None:
    sender, receiver, *_ = Manifest.read(run / "run.json").clocks
    path = run / f"packets/{sender if sends else receiver}.parquet"
    damage(path)
    left, _ = read_packet_file(path)
    assert left.damaged and 0 < len(left) < GROUPS * ROWS
    job = shown(run, capsys)
    assert job["bytes"] == GROUPS * ROWS * FRAME
    assert job["lost_share"] is None
    assert any(path.name in note and "other end" in note for note in job["notes"])


def test_damaged_at_both_ends_has_no_loss(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (run / "packets").iterdir():
        damage(path)
    job = shown(run, capsys)
    assert 0 < job["bytes"] < GROUPS * ROWS * FRAME and job["lost_share"] is None


def test_a_block_with_values_of_no_capture_is_damaged(run: Path) -> None:
    sender = next(iter(Manifest.read(run / "run.json").clocks))
    path = run / f"packets/{sender}.parquet"
    table = pq.read_table(path)
    times = table["t_mono_us"].to_pylist()
    times[0] += 10**15  # decades later
    position = table.schema.get_field_index("t_mono_us")
    pq.write_table(table.set_column(position, table.schema.field(position), [times]), path, row_group_size=ROWS)
    found, _ = read_packet_file(path)
    assert found.damaged and len(found) == (GROUPS - 1) * ROWS
