"""Burst and idle of synthetic waves whose truth is known: noise, jitter, lost samples, drift, tails, absurd points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.burst_metrics import measure
from driple.pipeline.traces.series import LEVEL, Series

PERIOD_S = 0.01


@dataclass(frozen=True)
class Wave:
    t_s: Any
    value: Any
    burst_s: float
    idle_s: float
    amount: float


def wave(
    *,
    burst: float,
    idle: float,
    sigmas: float,
    seed: int,
    jitter: float = 0.0,
    lost: float = 0.0,
    drift: float = 0.0,
    base: float = 0.0,
    height: float = 80.0,
    samples: int = 12_000,
) -> Wave:
    """A square wave sampled at moments that wander. Durations in samples; truth is that of the whole cycles."""
    random = np.random.default_rng(seed)
    cycles = max(4, int(samples / (burst + idle)), int(3000 / burst), int(3000 / idle))
    bursts = burst * PERIOD_S * (1 + jitter * random.uniform(-1, 1, cycles))
    idles = idle * PERIOD_S * (1 + jitter * random.uniform(-1, 1, cycles))
    edges = np.cumsum(np.stack([idles, bursts], axis=1).ravel())
    end = float(edges[-1])
    t = np.arange(PERIOD_S, end + idle * PERIOD_S, PERIOD_S)
    t = t + random.uniform(-0.2, 0.2, len(t)) * PERIOD_S
    t = t[random.random(len(t)) >= lost]
    high = np.searchsorted(edges, t) % 2 == 1
    level = height * (1 + drift * np.sin(2 * np.pi * t / end))
    value = base + np.where(high, level, 0.0) + random.normal(0, height / sigmas, len(t))
    inside = high & (t < end)
    return Wave(t, value, float(np.mean(bursts)), float(np.mean(idles[1:])), float(np.mean((base + level)[inside])))


@settings(max_examples=150, derandomize=True)
@given(
    burst=st.integers(8, 120),
    idle=st.integers(8, 120),
    sigmas=st.floats(5.0, 50.0),
    jitter=st.floats(0.0, 0.2),
    lost=st.floats(0.0, 0.1),
    drift=st.floats(0.0, 0.15),
    base=st.sampled_from([0.0, 5.0, 200.0]),
    kind=st.sampled_from([BUSY, NETWORK, LEVEL]),
    guided=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_durations_are_right_to_a_sample_and_amounts_to_two_percent(
    burst: int,
    idle: int,
    sigmas: float,
    jitter: float,
    lost: float,
    drift: float,
    base: float,
    kind: str,
    guided: bool,
    seed: int,
) -> None:
    true = wave(burst=burst, idle=idle, sigmas=sigmas, jitter=jitter, lost=lost, drift=drift, base=base, seed=seed)
    scale = 1e6 if kind == NETWORK else 1.0
    series = Series("wave", true.t_s, true.value * scale, "%", kind)
    found = measure(series, step_s=true.burst_s + true.idle_s if guided else None)
    assert found.pattern == "BIB"
    assert found.burst_s == pytest.approx(true.burst_s, abs=PERIOD_S)
    assert found.idle_s == pytest.approx(true.idle_s, abs=PERIOD_S)
    assert found.burst_amount == pytest.approx(true.amount * scale, rel=0.02)
    assert found.period_s == pytest.approx(true.burst_s + true.idle_s, abs=PERIOD_S)


def as_counter(true: Wave, scale: float) -> Series:
    """The same wave as a counter of bytes would have shown it: each rate is the mean over its own time."""
    from driple.pipeline.traces.rates import rate

    fine = np.arange(0, true.t_s[-1], PERIOD_S / 20)
    level = np.interp(fine, true.t_s, true.value, left=0.0)
    count = np.r_[0.0, np.cumsum(np.maximum(level, 0.0) * scale * PERIOD_S / 20)]
    found = rate(true.t_s, np.interp(true.t_s, np.r_[fine, fine[-1] + PERIOD_S / 20], count))
    return Series("counter", found.t_s, found.per_s, "B/s", NETWORK, found.refresh.period_s)


@pytest.mark.parametrize("seed", range(5))
def test_a_counter_shows_the_same_wave(seed: int) -> None:
    true = wave(burst=15, idle=40, sigmas=20.0, jitter=0.1, seed=seed)
    found = measure(as_counter(true, 1e6))
    assert found.burst_s == pytest.approx(true.burst_s, abs=PERIOD_S)
    assert found.idle_s == pytest.approx(true.idle_s, abs=PERIOD_S)
    assert found.burst_amount == pytest.approx(true.amount * 1e6, rel=0.02)


@pytest.mark.parametrize("kind", [BUSY, NETWORK, LEVEL])
@pytest.mark.parametrize("absurd", [1e4, 1e9])
def test_absurd_points_change_nothing(kind: str, absurd: float) -> None:
    true = wave(burst=20, idle=30, sigmas=10.0, seed=1)
    value = true.value * 1e6
    plain = measure(Series("wave", true.t_s, value, "", kind))
    value[[300, 7000, 9001]] *= absurd
    value[4000] = -absurd * 1e6
    spiked = measure(Series("wave", true.t_s, value, "", kind))
    assert "absurd:4" in spiked.flags
    assert spiked.bursts == plain.bursts
    for name in ("burst_s", "idle_s", "burst_amount"):
        assert getattr(spiked, name) == pytest.approx(getattr(plain, name), rel=0.002)


@pytest.mark.parametrize("seed", range(4))
def test_a_heavy_tail_does_not_raise_the_threshold_through_its_bursts(seed: int) -> None:
    random = np.random.default_rng(seed)
    high = np.arange(20_000) % 60 < 12
    value = np.where(high, 4e7 * random.lognormal(0, 0.5, 20_000), 2e4 * random.random(20_000))
    found = measure(Series("rx", np.arange(1, 20_001) * PERIOD_S, value, "B/s", NETWORK))
    assert found.bursts == pytest.approx(333, abs=4)
    assert found.burst_s == pytest.approx(0.12, abs=PERIOD_S)
    assert found.idle_s == pytest.approx(0.48, abs=PERIOD_S)
    assert found.burst_amount == pytest.approx(float(np.mean(value[high])), rel=0.08)


@pytest.mark.parametrize("kind", [BUSY, NETWORK, LEVEL])
@pytest.mark.parametrize("noise", ["normal", "uniform"])
@pytest.mark.parametrize("seed", range(4))
def test_noise_around_one_level_is_not_two_clusters(kind: str, noise: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    draw = random.normal(0, 6, 6000) if noise == "normal" else random.uniform(-10, 10, 6000)
    found = measure(Series("flat", np.arange(6000) * PERIOD_S, (60 + draw) * 1e6, "", kind))
    assert found.pattern == "B"
    assert found.idle_s == 0.0
    assert found.burst_amount == pytest.approx(60e6, rel=0.01)


def test_keep_alives_are_rest_and_no_bursts() -> None:
    value = np.zeros(6000)
    value[::97] = 6_600.0  # 66 bytes in 10 ms
    found = measure(Series("rx", np.arange(6000) * PERIOD_S, value, "B/s", NETWORK), step_s=0.5)
    assert (found.pattern, found.burst_s, found.idle_s, found.burst_amount) == ("I", 0.0, 0.5, 0.0)


@settings(max_examples=40)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40),
    kind=st.sampled_from([BUSY, NETWORK, LEVEL]),
    seed=st.integers(0, 1000),
    step_s=st.sampled_from([None, 0.05, 1.0, float("nan"), 0.0, -1.0]),
)
def test_whatever_the_numbers_there_is_an_answer(
    values: list[float], kind: str, seed: int, step_s: float | None
) -> None:
    t = np.sort(np.random.default_rng(seed).uniform(0, 10, len(values)))
    found = measure(Series("odd", t, np.array(values, dtype=float), "", kind), step_s=step_s)
    assert found.pattern in ("I", "BIB", "B", "?")
    for name in ("burst_s", "idle_s", "period_s"):
        duration = getattr(found, name)
        assert duration is None or duration >= 0.0
