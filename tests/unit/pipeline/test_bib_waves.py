"""Burst and idle of synthetic waves whose truth is known: noise, jitter, lost samples, drift, tails, absurd points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driple.pipeline.bib import measure
from driple.pipeline.series import BUSY, LEVEL, NETWORK, Series

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
    cycles = max(4, int(samples / (burst + idle)))
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


@settings(max_examples=60)
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
    true = wave(
        burst=burst, idle=idle, sigmas=sigmas, jitter=jitter, lost=lost, drift=drift, base=base, seed=seed
    )
    scale = 1e6 if kind == NETWORK else 1.0
    series = Series("wave", true.t_s, true.value * scale, "%", kind)
    found = measure(series, step_s=true.burst_s + true.idle_s if guided else None)
    assert found.pattern == "BIB"
    assert found.burst_s == pytest.approx(true.burst_s, abs=PERIOD_S)
    assert found.idle_s == pytest.approx(true.idle_s, abs=PERIOD_S)
    assert found.burst_amount == pytest.approx(true.amount * scale, rel=0.02)
    assert found.period_s == pytest.approx(true.burst_s + true.idle_s, abs=PERIOD_S)
