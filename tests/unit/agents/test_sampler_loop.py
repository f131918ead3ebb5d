"""The loop on a clock that the test moves: an hour takes seconds, and nothing grows in it."""

from __future__ import annotations

import sys
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sampler.samples_file import SamplesFile
from driple.agents.sampler.samples_writer import SampleWriter
from driple.agents.sampler.sampling_loop import Sampler, streams_of
from driple.agents.sampler.seal import seal
from driple.agents.sampler.stop_control import Control
from driple.agents.sampler.ticker import SECOND_NS, Ticker
from driple.agents.sources.base import Late, Value, declared, nth, period_in_ticks
from driple.agents.sources.tcp_flows import FlowTable
from driple.contracts.formats.trace import FLOW_COLUMNS, TRACE_COLUMNS


class FakeTime:
    def __init__(self) -> None:
        self.now_ns = 0
        self.at: dict[int, Any] = {}
        """What to do once that many seconds have passed."""

    def now(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> bool:
        self.now_ns += round(seconds * SECOND_NS)
        due = [when for when in self.at if self.now_ns >= when * SECOND_NS]
        for when in due:
            self.at.pop(when)()
        return False


class FakeControl(Control):
    """Stops after a time on the fake clock."""

    def __init__(self, seconds: float) -> None:
        self.reason = self.told = None
        self._start = 0
        self._for_ns = int(seconds * SECOND_NS)
        self._limit_s = 1e9
        self._ended = lambda: None
        self._stdin = -1


class Counter:
    """Counts its reads; late samples come in batches of ten."""

    def __init__(self, name: str, columns: Sequence[str], period_ticks: int, late: bool = False) -> None:
        self.name, self.columns, self.period_ticks = name, columns, period_ticks
        self.reads = 0
        self._late: list[Late] | None = [] if late else None

    def open(self) -> None:
        pass

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        assert row[at] is None
        self.reads += 1
        if self._late is None:
            row[at] = self.reads
        else:
            self._late.append((t_mono_ns - 5, (1.0,)))

    def extra(self, last: bool = False) -> Sequence[Late]:
        if not self._late or len(self._late) < 10:
            return ()
        late, self._late = self._late, []
        return late

    def quality(self) -> dict[str, Any]:
        return {"own": self.reads}

    def close(self) -> None:
        pass


class FakeFlows(FlowTable):
    def open(self) -> None:
        pass

    def read(self, t_mono_ns: int) -> Sequence[Sequence[Any]]:
        return [(t_mono_ns, 7, "10.0.0.1", 1, "10.0.0.2", 2, None, t_mono_ns, 0, 0)]


def sampling(out: Path, hz: float, seconds: float) -> tuple[Sampler, FakeTime, SampleWriter]:
    fake = FakeTime()
    sources = [
        Counter("nic", ["nic_tx_bytes"], 1),
        Counter("host", ["host_cpu_busy_ns"], period_in_ticks(hz, 10)),
        Counter("gpu0", ["gpu_util_pct"], 1, late=True),
    ]
    tables = [FakeFlows(hz, 5)]
    writer = SampleWriter(out, streams_of(sources, tables), {})
    ticker = Ticker(hz, fake.wait, fake.now)
    return Sampler(sources, tables, writer, ticker, FakeControl(seconds)), fake, writer


def test_every_source_is_read_at_its_own_rate_and_all_of_it_is_written(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    sampler, _, writer = sampling(tmp_path / "x.parquet", 100, 10)
    sampler.run()
    summary = sampler.finish()
    writer.close()
    assert summary["stopped_by"] == "duration"
    assert summary["loop"]["ticks"] == 1001
    # One more than the ticks of ten seconds: everything is read once more at the stop.
    assert summary["sources"]["nic"]["reads"] == 1001
    assert summary["sources"]["host"]["reads"] == 101
    assert summary["sources"]["host"]["real_period_ms"]["median"] == pytest.approx(100, rel=0.02)
    assert summary["sources"]["nic"]["own"] == 1001
    assert summary["sources"]["gpu0"]["late_samples"] == 1001
    assert summary["tables"]["flows"]["rows"] == 51
    assert seal(writer.path) == {tmp_path / "x.parquet": 2002, tmp_path / "x.flows.parquet": 51}
    table = pq.read_table(tmp_path / "x.parquet")
    assert [v for v in table["nic_tx_bytes"].to_pylist() if v is not None] == list(range(1, 1002))
    assert [v for v in table["host_cpu_busy_ns"].to_pylist() if v is not None] == list(range(1, 102))
    times = table["t_mono_ns"].to_pylist()
    assert times == sorted(times)
    assert table["t_real_ns"].null_count == 2002 - 11
    assert table["gpu_util_pct"].null_count == 1001
    flows = pq.read_table(tmp_path / "x.flows.parquet")
    assert flows.column_names == [column.name for column in FLOW_COLUMNS]


def test_rows_reach_the_file_within_a_second_at_any_rate(tmp_path: Path) -> None:
    for hz in (1, 3, 100):
        sampler, fake, writer = sampling(tmp_path / f"{hz}.parquet", hz, 4)
        seen: list[int] = []
        fake.at = {3: lambda seen=seen, writer=writer: seen.append(SamplesFile(writer.path).rows[0])}
        sampler.run()
        assert seen[0] >= 2 * hz
        writer.close()


def test_an_hour_leaves_memory_where_it_was(tmp_path: Path) -> None:
    sampler, fake, writer = sampling(tmp_path / "x.parquet", 50, 3600)
    blocks: dict[int, int] = {}

    def look(minute: int) -> None:
        blocks[minute] = sys.getallocatedblocks()

    fake.at = {60 * minute: lambda minute=minute: look(minute) for minute in (5, 20, 40, 59)}
    sampler.run()
    writer.close()
    assert SamplesFile(writer.path).rows[0] == 180_001
    # A block of rows more or less is pending at each look; 64 rows of 6 values are some hundreds of objects.
    assert max(blocks.values()) - min(blocks.values()) < 3000


def test_a_killed_sampler_has_left_its_quality_of_some_seconds_ago(tmp_path: Path) -> None:
    sampler, fake, writer = sampling(tmp_path / "x.parquet", 100, 100)
    notes: list[dict[str, Any]] = []
    fake.at = {95: lambda: notes.append(SamplesFile(writer.path).note)}
    sampler.run()
    writer.close()
    assert notes[0]["loop"]["ticks"] >= 6000
    assert "clean_stop" not in notes[0]


def test_numbered_columns_find_their_declaration() -> None:
    names = [column.name for column in TRACE_COLUMNS]
    assert nth(names, 0) == names
    for position in (1, 12):
        assert [declared(name) for name in nth(names, position)] == names
    assert period_in_ticks(100, 10) == 10
    assert period_in_ticks(1, 10) == 1
