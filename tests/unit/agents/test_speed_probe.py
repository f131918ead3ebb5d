"""The benchmark behind a fingerprint, run for real; how fast the machine is is not asserted."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from driple.agents.hostinfo import speed_probe
from driple.contracts.fingerprint import MEASURES, read_fingerprint
from driple.contracts.json_values import to_plain


def test_a_real_fingerprint_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_probe, "_REPEATS", 3)
    before = _children()
    found = speed_probe.take_fingerprint()
    assert read_fingerprint(to_plain(found)) == found
    assert found.cores == len(os.sched_getaffinity(0))
    assert set(found.spread_pct) == set(MEASURES)
    assert min(found.spread_pct.values()) >= 0
    assert _children() <= before  # the process at the other end of the pipes is gone


def _children() -> set[str]:
    return set(Path("/proc/thread-self/children").read_text().split())


def test_the_spread_is_that_of_the_middle_half() -> None:
    assert speed_probe._spread_pct([100.0, 90.0, 110.0, 1.0, 900.0]) == pytest.approx(20.0)
    assert speed_probe._spread_pct([5.0]) == 0.0


def test_the_text_to_compress_is_the_same_everywhere() -> None:
    words = speed_probe._words(1 << 16)
    assert len(words) == 1 << 16
    assert zlib.crc32(words) == zlib.crc32(speed_probe._words(1 << 16))
    assert 0.2 < len(zlib.compress(words)) / len(words) < 0.8
