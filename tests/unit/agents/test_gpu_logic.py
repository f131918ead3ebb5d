"""The GPU source without a driver: clocks, merging, refusing, and what must hold whatever a driver does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from driple.agents.sources.gpu import sample_clock
from driple.agents.sources.gpu.gpu_source import Row, combine, merge, refuse
from driple.agents.sources.gpu.nvml_samples import Buffer
from driple.agents.sources.gpu.sample_clock import Stamps, clock_of, offset_ns
from driple.agents.sources.gpu.sample_gaps import gap_value

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
    monkeypatch.setattr(sample_clock, "offset_ns", lambda _clock: (state["mono_ms"] - state["wall_ms"]) * 1_000_000)
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
    assert gap_value(answer, heard, age_ms * 1_000_000) == pytest.approx(expected)
