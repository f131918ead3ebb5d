"""The GPU source without a driver: clocks, merging, refusing, and what must hold whatever a driver does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.agents import gpu_samples
from driple.agents.gpu import COLUMNS, GpuSource, Row, combine, merge, refuse
from driple.agents.gpu_holes import LONGEST_NS, of_the_hole
from driple.agents.gpu_samples import Buffer, Stamps, clock_of, offset_ns
from driple.agents.source import Late

SECOND_US = 1_000_000
NOW_US = {"mono": 5_000 * SECOND_US, "boot": 9_000 * SECOND_US, "wall": 1_800_000_000 * SECOND_US}


@pytest.mark.parametrize(
    ("stamp_us", "expected"),
    [
        (NOW_US["wall"] - 10_000, "wall"),
        (NOW_US["wall"] + 500, "wall"),  # a sample that came while we looked at the clock
        (NOW_US["wall"] + 100_000, "device"),  # no sample is of the future
        (NOW_US["boot"] - 10_000, "boot"),
        (NOW_US["mono"] - 10_000, "mono"),
        (NOW_US["wall"] - 3_600 * SECOND_US, "device"),  # fresh and an hour old: a clock that was never set
        (NOW_US["wall"] + 3_600 * SECOND_US, "device"),
        (7_000 * SECOND_US, "device"),
        (0, "device"),
    ],
)
def test_the_clock_of_a_stamp(stamp_us: int, expected: str) -> None:
    assert clock_of(stamp_us, 3 * SECOND_US, NOW_US) == expected


def test_a_machine_that_was_never_suspended_has_one_clock_since_boot() -> None:
    same = {**NOW_US, "boot": NOW_US["mono"]}
    assert clock_of(NOW_US["mono"], SECOND_US, same) == "mono"


@pytest.mark.parametrize(
    ("value", "refused"), [(0, False), (100, False), (99.5, False), (900, True), (101, True), (-1, True), (1e300, True)]
)
def test_utilisation_has_bounds(value: float, refused: bool) -> None:
    assert refuse(value) is refused
    assert refuse(float("nan"))


def test_two_kinds_of_samples_meet_by_their_stamps() -> None:
    assert combine([[1, 3], [2, 3]], [[10, 30], [22, 33]]) == [(1, 10, None), (2, None, 22), (3, 30, 33)]
    assert combine([[1, 3], [1, 3]], [[10, 30], [11, 33]]) == [(1, 10, 11), (3, 30, 33)]
    assert combine([[], [2]], [[], [22]]) == [(2, None, 22)]


def test_what_comes_late_finds_its_row() -> None:
    held: list[Row] = [(1, 10, None), (3, 30, None)]
    assert merge(held, [(3, None, 33), (4, 40, 44)]) == [(1, 10, None), (3, 30, 33), (4, 40, 44)]
    assert merge(held, [(5, 50, 55)]) == [*held, (5, 50, 55)]


def test_the_offset_between_two_clocks() -> None:
    truth = time.monotonic_ns() - time.time_ns()
    assert abs(offset_ns(time.CLOCK_REALTIME) - truth) < 50_000_000
    assert abs(offset_ns(time.CLOCK_MONOTONIC)) < 50_000_000


def test_a_device_with_its_own_clock_is_placed_by_the_shortest_delay() -> None:
    stamps = Stamps(9_900 * 1_000_000)
    for now_ms, delay_ms in ((10_000, 9), (10_200, 2), (10_400, 7)):
        stamps.follow(now_ms * 1_000_000)
        stamps.see((now_ms - delay_ms - 3_000) * 1000, now_ms * 1_000_000)  # its clock is 3 s behind
    assert stamps.clock == "device"
    assert stamps.offset_ns == (3_000 + 2) * 1_000_000


@pytest.mark.parametrize(("behind_ms", "clock"), [(20, "mono"), (100, "device")])
def test_a_clock_that_is_near_the_hosts_by_chance_is_found_out(behind_ms: int, clock: str) -> None:
    stamps = Stamps(9_900 * 1_000_000)
    for now_ms in range(10_000, 14_000, 200):
        stamps.follow(now_ms * 1_000_000)
        stamps.see((now_ms - behind_ms - now_ms // 200 % 3) * 1000, now_ms * 1_000_000, 5_000)
    assert stamps.clock == clock
    assert stamps.offset_ns == (behind_ms * 1_000_000 if clock == "device" else 0)
    # Of one that is nearer nobody can tell, but by how much it can be wrong.
    assert stamps.error_ns == (None if clock == "device" else behind_ms * 1_000_000)


def test_a_clock_that_is_ahead_of_the_hosts_is_found_out_by_samples_from_the_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamps = Stamps(9_900 * 1_000_000)
    found = []
    for now_ms, late_ms in ((10_000, 4), (10_200, 1), (10_400, 2)):
        monkeypatch.setattr(time, "monotonic_ns", lambda now_ms=now_ms: now_ms * 1_000_000)
        stamps.follow(now_ms * 1_000_000)
        stamps.see((now_ms - late_ms + 3) * 1000, now_ms * 1_000_000)  # its clock is 3 ms ahead
        found.append(stamps.clock)
    assert found == ["mono", "device", "device"]
    assert stamps.offset_ns == (1 - 3) * 1_000_000


class Driver:
    """A driver's buffer in Python, as the C function that the binding would call."""

    py: Any = import_module("pynvml")

    def __init__(self, announced: int = 8) -> None:
        self.announced = announced
        self.samples: list[tuple[int, int]] = []
        self.room = 10_000
        self.code = 0
        self.value_type = 1

    def function(self, _name: str) -> Callable[..., int]:
        return self.get_samples

    def get_samples(self, _handle: Any, _kind: Any, last: Any, by_type: Any, by_count: Any, array: Any) -> int:
        by_type._obj.value = self.value_type
        if array is None:
            by_count._obj.value = self.announced
            return 0
        if self.code:
            return self.code
        if by_count._obj.value < self.room < 10_000:
            return 7
        given = [sample for sample in self.samples if sample[0] > last.value]
        for place, (stamp, value) in zip(array, given, strict=False):
            place.timeStamp, place.sampleValue.ullVal = stamp, 0xDEADBEEF00000000 | value
        by_count._obj.value = min(len(given), len(array))
        return 0 if given else 6


def opened(driver: Driver, now_ms: int = 10_000) -> tuple[Buffer, Stamps]:
    stamps = Stamps(now_ms * 1_000_000)
    buffer = Buffer(driver, None, 1, stamps)  # type: ignore[arg-type]
    assert buffer.open(now_ms * 1_000_000) == 0
    return buffer, stamps


def fetched(buffer: Buffer, stamps: Stamps, now_ms: int) -> list[tuple[float, float]]:
    if stamps.follow(now_ms * 1_000_000):
        buffer.forget()
    times, values = buffer.fetch(now_ms * 1_000_000)
    return [(t / 1e6, value) for t, value in zip(times, values, strict=True)]


@pytest.fixture
def unset_clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Host clocks under the test's control, all of them: how long this machine has been up must make no difference."""
    state = {"wall_ms": 1_800_000_000_000, "mono_ms": 10_000}
    monkeypatch.setattr(gpu_samples, "offset_ns", lambda _clock: (state["mono_ms"] - state["wall_ms"]) * 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: state["wall_ms"] * 1_000_000)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _clock: state["mono_ms"] * 1_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: state["mono_ms"] * 1_000_000)
    return state


def test_a_ring_in_any_order_and_with_repeats_is_put_in_order(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    buffer, stamps = opened(driver)
    times = [10_030, 10_040, 10_010, 10_020, 10_020]
    driver.samples = [(t * 1000, t % 100) for t in times]
    unset_clocks["mono_ms"] = 10_050
    assert fetched(buffer, stamps, 10_050) == [(10_010, 10), (10_020, 20), (10_030, 30), (10_040, 40)]
    assert fetched(buffer, stamps, 10_060) == []


def test_what_the_buffer_held_before_the_trace_is_not_of_the_trace(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    driver.samples = [(t * 1000, 50) for t in range(9_900, 10_000, 10)]
    buffer, stamps = opened(driver)
    driver.samples.append((10_010 * 1000, 60))
    assert fetched(buffer, stamps, 10_015) == [(10_010, 60)]
    assert buffer.period_us == 10_000


def test_a_buffer_that_grew_is_read_with_a_larger_place(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    buffer, stamps = opened(driver)
    driver.announced = driver.room = 400
    driver.samples = [((10_000 + k) * 1000, k % 100) for k in range(1, 301)]
    assert len(fetched(buffer, stamps, 10_400)) == 300


def test_a_wall_clock_that_is_set_back_does_not_silence_the_device(unset_clocks: dict[str, int]) -> None:
    wall, driver = unset_clocks["wall_ms"], Driver()
    buffer, stamps = opened(driver)
    driver.samples = [((wall - 5) * 1000, 40)]
    assert fetched(buffer, stamps, 10_000 + 0) == []  # of before the trace
    driver.samples.append(((wall + 90) * 1000, 50))
    unset_clocks.update(wall_ms=wall + 100, mono_ms=10_100)
    assert fetched(buffer, stamps, 10_100) == [(10_090, 50)]

    hour = 3_600_000
    driver.samples.append(((wall + 190 - hour) * 1000, 60))
    unset_clocks.update(wall_ms=wall + 200 - hour, mono_ms=10_200)
    assert fetched(buffer, stamps, 10_200) == [(10_190, 60)]
    assert stamps.steps == 1

    driver.samples.append(((wall + 290 - hour) * 1000, 70))
    unset_clocks.update(wall_ms=wall + 300 - hour, mono_ms=10_300)
    assert fetched(buffer, stamps, 10_300) == [(10_290, 70)]

    driver.samples = [((wall + 390 - hour) * 1000, 80)]  # what was stamped by the old time has left the buffer
    unset_clocks.update(wall_ms=wall + 400 - hour, mono_ms=10_400)
    assert fetched(buffer, stamps, 10_400) == [(10_390, 80)]
    assert stamps.steps == 1 and stamps.clock == "wall" and buffer.counts["misdated"] == 0


def test_a_wall_clock_that_is_set_forward_loses_nothing(unset_clocks: dict[str, int]) -> None:
    wall, driver = unset_clocks["wall_ms"], Driver()
    buffer, stamps = opened(driver)
    driver.samples = [((wall + 90) * 1000, 50)]
    unset_clocks.update(wall_ms=wall + 100, mono_ms=10_100)
    assert fetched(buffer, stamps, 10_100) == [(10_090, 50)]
    hour = 3_600_000
    driver.samples.append(((wall + 190 + hour) * 1000, 60))
    unset_clocks.update(wall_ms=wall + 200 + hour, mono_ms=10_200)
    assert fetched(buffer, stamps, 10_200) == [(10_190, 60)]
    assert stamps.steps == 1 and stamps.clock == "wall"


def test_a_device_that_counts_from_elsewhere_all_at_once_has_a_clock_of_its_own(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    buffer, stamps = opened(driver)
    driver.samples = [(10_010 * 1000, 10)]
    assert fetched(buffer, stamps, 10_020) == [(10_010, 10)] and stamps.clock == "mono"
    # As after a suspend of the host, which its monotonic clock does not count.
    seen = []
    for now_ms in range(10_200, 11_200, 100):
        driver.samples = [((now_ms - 10 + 900_000) * 1000, 20)]
        unset_clocks["mono_ms"] = now_ms
        seen += fetched(buffer, stamps, now_ms)
    assert stamps.clock == "device"
    assert [t for t, _ in seen] == list(range(10_200, 11_200, 100))  # the delay of a device's own clock is not known
    assert buffer.counts["misdated"] == 0


def test_an_error_in_passing_is_counted_and_nothing_is_lost(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    buffer, stamps = opened(driver)
    driver.samples, driver.code = [(10_010 * 1000, 10)], 999
    assert fetched(buffer, stamps, 10_020) == []
    driver.code = 0
    assert fetched(buffer, stamps, 10_120) == [(10_010, 10)]
    assert buffer.counts["errors"] == 1


def test_a_value_type_from_the_future_gives_no_values(unset_clocks: dict[str, int]) -> None:
    driver = Driver()
    buffer, stamps = opened(driver)
    driver.samples, driver.value_type = [(10_010 * 1000, 10)], 99
    assert fetched(buffer, stamps, 10_020) == []


def test_gaps_are_counted_within_a_fetch_and_between_two(unset_clocks: dict[str, int]) -> None:
    driver = Driver(announced=100)
    driver.samples = [(t * 1000, 50) for t in range(9_900, 10_000, 10)]
    buffer, stamps = opened(driver)
    counted = []
    for first_ms, last_ms in ((10_000, 10_100), (10_100, 10_200), (10_400, 10_500), (10_500, 10_600)):
        driver.samples += [(t * 1000, 50) for t in range(first_ms, last_ms, 10)]
        unset_clocks["mono_ms"] = last_ms
        fetched(buffer, stamps, last_ms)
        counted.append(buffer.counts["sample_gaps"])
    assert counted == [0, 0, 1, 1]
    driver.samples += [(t * 1000, 50) for t in (10_600, 10_610, 10_650, 10_660)]
    fetched(buffer, stamps, 10_670)
    assert buffer.counts["sample_gaps"] == 2


BUSY = [100.0] * 10


@pytest.mark.parametrize(
    ("answer", "heard", "age_ms", "expected"),
    [
        (100, BUSY, 60, None),  # of the burst before, or of a device that works on: nobody can tell
        (80, BUSY, 60, 0),  # part of the window is of the burst, the rest is of something lower
        (0, BUSY, 60, 0),
        (40, BUSY, 255, 0),
        (75, BUSY, 255, 50),  # half of the window at most is of the burst
        (100, BUSY, 255, None),
        (100, BUSY, 340, 100),
        (37, BUSY, 340, 37),
        (50, [0.0, 100.0] * 5, 60, None),  # as samples said before, and no sign of anything
        (0, [0.0, 100.0] * 5, 60, None),  # it speaks at rest, so its silence has another reason
        (0, [0.0, 100.0] * 5, 340, 0),
        (50, [], 60, None),
        (0, [], 60, 0),
        (50, [], 400, 50),
    ],
)
def test_what_the_gauge_says_of_a_hole(
    answer: float, heard: Sequence[float], age_ms: int, expected: float | None
) -> None:
    assert of_the_hole(answer, heard, age_ms * 1_000_000) == pytest.approx(expected)


class Tape:
    """In place of a buffer: samples that show at given times."""

    period_us = 10_000
    capacity = 100
    clock = "mono"

    def __init__(self, shown: Sequence[tuple[int, int, float]]) -> None:
        self.shown = sorted(shown, key=lambda sample: sample[1])  # (shows at, stamp, value)
        self.diffs_us: list[int] = []
        self.counts = dict.fromkeys(gpu_samples.COUNTS, 0)
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
        assert late <= 80 and len(source._pending) <= 80 and all(len(hole.looks) <= 4 for hole in source._holes)
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
