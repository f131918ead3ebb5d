"""GpuSource over samples that show when they like: order, holes and the gauge, and what does not grow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.agents.sources.base import Late
from driple.agents.sources.gpu.base import COLUMNS, COUNTS
from driple.agents.sources.gpu.gpu_source import GpuSource
from driple.agents.sources.gpu.sample_gaps import LONGEST_NS


class Tape:
    """In place of a buffer: samples that show at given times."""

    period_us = 10_000
    capacity = 100
    clock = "mono"

    def __init__(self, shown: Sequence[tuple[int, int, float]]) -> None:
        self.shown = sorted(shown, key=lambda sample: sample[1])  # (shows at, stamp, value)
        self.diffs_us: list[int] = []
        self.counts = dict.fromkeys(COUNTS, 0)
        self.newest_ns = 0

    def fetch(self, now_ns: int) -> tuple[list[int], list[float]]:
        ready = [sample for sample in self.shown if sample[0] <= now_ns]
        self.shown = [sample for sample in self.shown if sample[0] > now_ns]
        self.newest_ns = max([self.newest_ns, *(stamp for _, stamp, _ in ready)])
        return [stamp for _, stamp, _ in ready], [value for _, _, value in ready]

    def is_dry(self, now_ns: int, patience_ns: int) -> bool:
        return now_ns - self.newest_ns > patience_ns


def source_of(first: Tape, second: Tape) -> GpuSource:
    source = GpuSource("0", 0, 100)
    source._buffers = [first, second]  # type: ignore[list-item]
    return source


def run(source: GpuSource, reads_ns: Sequence[int]) -> list[Late]:
    found: list[Late] = []
    for t in reads_ns:
        source.read(t, [None] * len(COLUMNS), 0)
        found += source.extra()
    source._release(flush=True)
    found += source._late
    return found


@given(seed=st.integers(0, 2**32), lag_ms=st.integers(0, 99), period_ms=st.sampled_from([1, 7, 20, 150, 170]))
def test_every_sample_comes_once_and_times_never_go_back(seed: int, lag_ms: int, period_ms: int) -> None:
    chance = random.Random(seed)
    step = period_ms * 1_000_000
    tapes = []
    for _ in range(2):
        visible, shown = 0, []
        for k in range(1, 60):
            visible = max(visible, k * step + chance.randint(0, lag_ms * 1_000_000))
            shown.append((visible, k * step + chance.choice([0, 0, 1]), k % 100))
        tapes.append(shown)
    truth = [{(stamp, value) for _, stamp, value in shown} for shown in tapes]
    end = 61 * step + 400_000_000
    # A sample that shows a whole read later than a newer one of the other kind cannot be placed any more.
    found = run(source_of(Tape(tapes[0]), Tape(tapes[1])), range(100_000_000, end, 100_000_000))
    assert all(a[0] < b[0] for a, b in pairwise(found))
    for slot in range(2):
        assert {(t, values[slot]) for t, values in found if values[slot] is not None} == truth[slot]


class Meter:
    """In place of the gauge."""

    def __init__(self, value: int) -> None:
        self.value = value

    def call(self) -> int:
        return 0

    def take(self) -> tuple[int, int]:
        return self.value, self.value


def test_the_gauge_speaks_only_for_times_of_which_no_sample_speaks() -> None:
    second = 1_000_000_000
    shown = [(k * 10_000_000 + 1, k * 10_000_000, 100.0) for k in [*range(1, 101), *range(301, 401)]]
    source = source_of(Tape(shown), Tape(shown))
    source._gauge = Meter(37)  # type: ignore[assignment]
    found = run(source, range(second // 10, 5 * second, second // 10))
    gauged = [t for t, values in found if values[0] == 37]
    assert gauged and all(second < t <= 3 * second or t > 4 * second for t in gauged)
    assert len([values for _, values in found if values[0] == 100]) == 200


MS = 1_000_000


def wave(busy_ms: int, idle_ms: int, end_ms: int, *, silent: bool) -> list[tuple[int, int, float]]:
    """Samples every 10 ms of a square wave, of its bursts alone where the device is silent while it is idle."""
    found = []
    for t in range(10, end_ms, 10):
        busy = (t - 10) % (busy_ms + idle_ms) < busy_ms
        if busy or not silent:
            found.append((t * MS + 1, t * MS, 100.0 * busy))
    return found


@pytest.mark.parametrize("other_is_silent", [True, False])
@pytest.mark.parametrize("idle_ms", [250, 300, 1_000])
def test_a_hole_that_the_gauge_saw_at_rest_is_filled_at_the_devices_period(idle_ms: int, other_is_silent: bool) -> None:
    end = 8_000
    source = source_of(
        Tape(wave(200, idle_ms, end, silent=True)), Tape(wave(200, idle_ms, end, silent=other_is_silent))
    )
    source._gauge = Meter(0)  # type: ignore[assignment]
    found = run(source, range(130 * MS, (end + 100) * MS, 200 * MS))
    truth = [(t, value) for _, t, value in wave(200, idle_ms, end, silent=False)]
    assert all(a[0] < b[0] for a, b in pairwise(found)) and source._displaced == 0
    last = truth[-1][0] - 200 * MS
    for slot in range(2):
        seen = [(t, values[slot]) for t, values in found if values[slot] is not None]
        assert [sample for sample in seen if sample[0] < last and sample[1]] == [
            s for s in truth if s[0] < last and s[1]
        ]
        times = [t for t, _ in seen if t < last]
        # Rows end at the moment of a look, so that two of them can be a little more or less than a period apart.
        assert all(5 * MS <= b - a <= 15 * MS for a, b in pairwise(times))


def test_a_hole_in_which_the_device_worked_is_not_filled() -> None:
    shown = [(k * 10 * MS + 1, k * 10 * MS, 100.0) for k in [*range(1, 101), *range(301, 401)]]
    source = source_of(Tape(shown), Tape(shown))
    source._gauge = Meter(100)  # type: ignore[assignment]
    found = run(source, range(200 * MS, 4_000 * MS, 200 * MS))
    within = [t for t, _ in found if 1_000 * MS < t < 3_010 * MS]
    assert 5 <= len(within) <= 10 and all(t % (200 * MS) == 0 for t in within)


def test_what_was_lost_as_the_buffer_was_full_is_not_filled() -> None:
    burst = [(k * 10 * MS + 1, k * 10 * MS, 100.0) for k in range(1, 21)]
    # Silent from 200 ms on, looked at until 600 ms; the next read is late, and finds the last 100 samples alone.
    shown = [*burst, *((3_000 * MS, 2_000 * MS + k * 10 * MS, 100.0) for k in range(1, 101))]
    source = source_of(Tape(shown), Tape(shown))
    source._gauge = Meter(0)  # type: ignore[assignment]
    found = run(source, [*range(200 * MS, 800 * MS, 200 * MS), 3_010 * MS])
    assert {values[0] for t, values in found if 210 * MS < t <= 600 * MS} == {0}
    assert not [t for t, _ in found if 600 * MS < t <= 2_000 * MS]


def test_a_device_that_is_dry_for_an_hour_is_filled_read_by_read() -> None:
    shown = [(k * 10 * MS + 1, k * 10 * MS, 100.0) for k in range(1, 101)]
    source = source_of(Tape(shown), Tape(shown))
    source._gauge = Meter(0)  # type: ignore[assignment]
    sent = 0
    for t in range(200 * MS, 3_600_000 * MS, 200 * MS):
        source.read(t, [None] * len(COLUMNS), 0)
        late = len(source.extra())
        sent += late
        assert late <= 80 and len(source._pending) <= 80 and all(len(gap.looks) <= 4 for gap in source._gaps)
    assert sent == pytest.approx(360_000, abs=200)
    # And one that was held for an hour does not make up for all of it.
    for t in range(7_200_000 * MS, 7_202_000 * MS, 200 * MS):
        source.read(t, [None] * len(COLUMNS), 0)
        assert len(source.extra()) <= LONGEST_NS // (10 * MS) + 80


def portioned(milliseconds: int) -> list[tuple[int, int, float]]:
    """Six seconds of samples every 10 ms, which show only at every so many milliseconds."""
    return [(-(-k * 10 // milliseconds) * milliseconds * 1_000_000, k * 10_000_000, 100.0) for k in range(1, 601)]


def test_samples_that_turn_up_after_all_replace_the_gauge() -> None:
    source = source_of(Tape(portioned(500)), Tape(portioned(500)))
    source._gauge = Meter(37)  # type: ignore[assignment]
    found = run(source, range(100_000_000, 6_000_000_001, 100_000_000))
    assert source._dry > 0 and source._displaced == 0
    assert [values[0] for _, values in found] == [100] * 600


def test_a_driver_that_shows_samples_in_large_portions_is_given_time() -> None:
    source = source_of(Tape(portioned(1_000)), Tape(portioned(1_000)))
    source._gauge = Meter(37)  # type: ignore[assignment]
    found = run(source, range(100_000_000, 6_000_000_001, 100_000_000))
    # It is taken for dry once, and what the gauge then said cannot be taken back.
    assert source._displaced < 100
    assert [values[0] for t, values in found if t > 1_100_000_000] == [100] * 490


def test_nothing_grows_in_an_hour() -> None:
    class Endless(Tape):
        def fetch(self, now_ns: int) -> tuple[list[int], list[float]]:
            self.newest_ns = now_ns
            return [now_ns - k * 20_000_000 for k in reversed(range(3))], [50.0] * 3

    source = source_of(Endless([]), Endless([]))
    sent = 0
    for t in range(200_000_000, 3_600 * 1_000_000_000, 200_000_000):
        source.read(t, [None] * len(COLUMNS), 0)
        sent += len(source.extra())
        assert len(source._pending) <= 6
    assert sent >= 3 * 17_990


def test_each_gpu_of_a_trace_has_its_own_name_and_columns() -> None:
    assert list(GpuSource("3", 0, 100).columns) == list(COLUMNS)
    other = GpuSource("4", 1, 100)
    assert other.name == "gpu1" and other.columns[0] == "gpu_util_pct_1"


def test_closing_what_was_never_opened_is_fine() -> None:
    source = GpuSource("0", 0, 100)
    source.close()
    assert source.extra() == ()
    assert source.quality()["method"] == {"gpu_util_pct": None, "gpu_mem_util_pct": None}
