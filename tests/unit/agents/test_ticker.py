"""Deadlines on a clock that the test moves."""

from __future__ import annotations

import time

from driple.agents.sampler.ticker import STOPPED, Ticker, raise_priority, real_at
from driple.contracts.protocol.clock import clock_answer

MS = 1_000_000


class FakeTime:
    def __init__(self) -> None:
        self.now_ns = 5 * MS
        self.overrun_ns = 0
        self.stop = False

    def now(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> bool:
        self.now_ns += round(seconds * 1e9) + self.overrun_ns
        return self.stop


def ticker(fake: FakeTime, hz: float = 100) -> Ticker:
    return Ticker(hz, fake.wait, fake.now)


def test_deadlines_are_absolute_so_lateness_does_not_add_up() -> None:
    fake = FakeTime()
    fake.overrun_ns = MS
    ticks = ticker(fake)
    times = [ticks.tick() for _ in range(1001)]
    assert times[1] == 5 * MS + 10 * MS + MS
    assert times[1000] == 5 * MS + 10_000 * MS + MS
    assert (ticks.missed, ticks.late, ticks.number) == (0, 0, 1000)


def test_a_tick_that_is_kept_late_is_counted_as_late() -> None:
    fake = FakeTime()
    ticks = ticker(fake)
    ticks.tick()
    fake.now_ns += 17 * MS
    assert ticks.tick() == fake.now_ns
    assert (ticks.late, ticks.missed) == (1, 0)
    assert ticks.summary()["lateness_us"]["max"] == 7000


def test_deadlines_that_passed_are_missed_and_the_grid_stays() -> None:
    fake = FakeTime()
    ticks = ticker(fake)
    ticks.tick()
    fake.now_ns += 53 * MS  # a stopped process: deadlines 1 to 4 are gone, 5 is late
    ticks.tick()
    assert (ticks.missed, ticks.number) == (4, 5)
    assert ticks.tick() == 5 * MS + 60 * MS
    assert ticks.summary()["missed_pct"] == round(100 * 4 / 7, 4)


def test_a_sleep_that_overruns_counts_the_same_way() -> None:
    fake = FakeTime()
    ticks = ticker(fake)
    ticks.tick()
    fake.overrun_ns = 31 * MS
    ticks.tick()
    assert (ticks.missed, ticks.number) == (3, 4)


def test_waits_that_end_early_go_on_and_a_stop_ends_them() -> None:
    fake = FakeTime()
    ticks = Ticker(100, lambda seconds: fake.wait(min(seconds, 0.003)), fake.now)
    ticks.tick()
    assert ticks.tick() == 15 * MS
    fake.stop = True
    assert ticks.tick() == STOPPED


def test_rates_that_do_not_divide_a_second() -> None:
    fake = FakeTime()
    ticks = ticker(fake, 300)
    times = [ticks.tick() for _ in range(301)]
    assert abs(times[300] - times[0] - 1_000_000_000) < 300


def test_a_probe_gets_its_number_and_both_clocks_back() -> None:
    before = time.monotonic_ns(), time.time_ns()
    word, number, mono, real = clock_answer("clock 17\n").split()
    assert (word, number) == ("clock", "17")
    assert before[0] <= int(mono) <= time.monotonic_ns()
    assert before[1] - 10**9 <= int(real) <= time.time_ns() + 10**9
    assert clock_answer("clock").split()[1] == "0"


def test_a_pair_of_clocks_speaks_of_one_moment() -> None:
    moment = time.monotonic_ns()
    offset = time.time_ns() - time.monotonic_ns()
    assert abs(real_at(moment) - moment - offset) < 10**9


def test_priority_says_what_was_obtained(monkeypatch: object) -> None:
    import os

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name in ("sched_setscheduler", "setpriority"):
        monkeypatch.setattr(os, name, refuse)  # type: ignore[attr-defined]
    obtained = raise_priority()
    assert obtained["policy"] == "other"
    assert "Operation not permitted" in obtained["refused"]
