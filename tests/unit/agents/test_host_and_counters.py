"""Host figures by fake files, and the perf plumbing by an event that every kernel has."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sources import memory_traffic
from driple.agents.sources.base import affordable_period
from driple.agents.sources.host_usage import HostSource
from driple.agents.sources.memory_traffic import CACHE_MISSES, MemoryTrafficSource, TaskCounter
from driple.agents.sources.process_tree import ProcessTree
from driple.contracts.errors import BadInput

TASK_CLOCK = (1, 1)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def read(source: Any, width: int) -> list[Any]:
    row: list[Any] = [None] * width
    source.read(0, row, 0)
    return row


def test_busy_time_leaves_waiting_out_and_memory_counts_what_is_not_available(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 1 5 1000 50 2 3 9 0 0\ncpu0 1 2 3\n")
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nBuffers: 1 kB\n")
    source = HostSource(100, tmp_path)
    source.open()
    assert source.period_ticks >= 10
    assert read(source, 2) == [21 * TICK_NS, 600 * 1024]
    assert source.quality()["stolen_s"] == 0  # what was stolen before counts for nothing
    (tmp_path / "stat").write_text("cpu  10 1 5 1000 50 2 3 209 0 0\ncpu0 1 2 3\n")
    assert read(source, 2)[0] == 21 * TICK_NS
    assert source.quality()["stolen_s"] == pytest.approx(200 * TICK_NS / 1e9)
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree:  100 kB\nBuffers:  4 kB\n\n")
    assert read(source, 2) == [21 * TICK_NS, None]
    source.close()
    source.close()


def test_files_that_cannot_be_read_give_nulls_and_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadInput, match="host: No such file"):
        HostSource(100, tmp_path).open()
    (tmp_path / "stat").write_text("nothing")
    (tmp_path / "meminfo").write_text("")
    source = HostSource(100, tmp_path)
    with caplog.at_level(logging.WARNING):
        source.open()
        assert read(source, 2) == read(source, 2) == [None, None]
    assert len(caplog.records) == 1
    assert source.quality()["failures"] == 7  # five of them when it was opened: it is read then to see what that costs
    source.close()


def opened_tree() -> ProcessTree:
    tree = ProcessTree(os.getpid())
    tree.open()
    return tree


def test_a_slow_source_is_read_less_often_and_one_slow_moment_makes_none() -> None:
    pauses = iter([0.05, 0.0, 0.0, 0.0, 0.0])  # the first read is interrupted
    assert affordable_period(100, 5.0, lambda: time.sleep(next(pauses)), 0.002) == 20
    assert affordable_period(100, 5.0, lambda: time.sleep(0.0005), 0.002) > 20
    assert affordable_period(100, 5.0, lambda: time.sleep(0.01), 0.002) == 100, "once a second, whatever it costs"


def test_memory_traffic_is_the_hardware_counters_or_null() -> None:
    tree = opened_tree()
    source = MemoryTrafficSource(tree, 100)
    source.open()
    sum(range(200_000))
    (value,) = read(source, 1)
    quality = source.quality()
    if quality["way"] is None:
        assert value is None
        assert "perf_event_open" in quality["lacks"]
    else:
        assert value is None or value > 0
    source.close()
    tree.close()


def test_a_machine_without_the_counter_gives_nulls_and_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(memory_traffic, "open_counter", refuse)
    tree = opened_tree()
    source = MemoryTrafficSource(tree, 100)
    source.open()
    assert read(source, 1) == [None]
    assert source.quality() == {"way": None, "lacks": "perf_event_open: No such file or directory"}
    tree.close()


@pytest.mark.parametrize(("answer", "expected"), [((0, 1.0), None), ((10, 1.0), 640), (OSError("gone"), None)])
def test_a_counter_that_never_counts_is_no_counter(answer: Any, expected: int | None) -> None:
    class Fake:
        user_only = False

        def read(self) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def close(self) -> None:
            pass

    source = MemoryTrafficSource(ProcessTree(), 100)
    source._line = 64
    source._counter = Fake()  # type: ignore[assignment]
    assert read(source, 1) == [expected]


def test_an_event_is_counted_over_the_threads_of_a_process() -> None:
    try:
        counter = TaskCounter([os.getpid()], TASK_CLOCK)
    except OSError as error:
        pytest.skip(f"no perf events here: {error}")
    before, _ = counter.read()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    after, share = counter.read()
    assert 0.04e9 < after - before < 10e9
    assert 0 < share <= 1
    counter.close()


def test_the_event_is_the_one_that_is_documented() -> None:
    assert CACHE_MISSES == (0, 3)
