"""The correction of simulated targets, against cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from driple.contracts.metrics import COLUMNS
from driple.inspector.base_model.log_correction import MOST, Simulated, fit_correction
from driple.inspector.data.array_types import FloatArray

BURST, LEVEL, MEMORY = (COLUMNS.index(name) for name in ("net_rx_burst_s", "gpu_burst_pct", "gpu_mem_burst_s"))


def simulated(rows: int = 60, seed: int = 0) -> Simulated:
    random = np.random.default_rng(seed)
    step_s = random.uniform(0.05, 2.0, rows)
    values = step_s[:, None] * random.uniform(0.1, 0.9, (rows, len(COLUMNS)))
    values[:, LEVEL] = random.uniform(20, 100, rows)
    values[:, MEMORY] = np.nan
    is_async: FloatArray = (np.arange(rows) % 2).astype(np.float64)
    return Simulated(values, step_s, random.uniform(1e6, 1e8, rows), random.uniform(100, 5000, rows), is_async)


def test_a_factor_is_learned_by_update_mode() -> None:
    found = simulated()
    targets = found.values * np.where(found.is_async[:, None] == 1, 1.5, 0.8)
    correction = fit_correction(found, targets)
    unseen = simulated(20, seed=1)
    wanted = unseen.values * np.where(unseen.is_async[:, None] == 1, 1.5, 0.8)
    said = correction.correct(unseen)
    assert said[:, BURST] == pytest.approx(wanted[:, BURST], rel=0.05)
    assert np.isnan(said[:, MEMORY]).all()


def test_nothing_to_correct_and_an_outlier() -> None:
    found = simulated()
    targets = found.values.copy()
    targets[0] *= 1000
    said = fit_correction(found, targets).correct(found)
    assert said[1:, BURST] == pytest.approx(found.values[1:, BURST], rel=0.05)


def test_levels_stay_within_what_was_measured() -> None:
    found = simulated()
    targets = np.minimum(found.values, 60.0)
    said = fit_correction(found, targets).correct(found._replace(values=found.values * 10))
    assert said[:, LEVEL].max() <= 60.0


def test_a_correction_is_limited_and_one_row_changes_nothing() -> None:
    found = simulated()
    far = fit_correction(found, found.values * 1e6).correct(found)
    assert far[:, BURST] == pytest.approx(found.values[:, BURST] * np.exp(MOST))
    single = Simulated(*(part[:1] for part in found))
    alone = fit_correction(single, single.values * 2)
    assert alone.coefficients == (None,) * len(COLUMNS)
    assert alone.correct(found)[:, BURST].tolist() == found.values[:, BURST].tolist()


def test_weights_of_rows() -> None:
    found = simulated(40)
    targets = found.values * np.where(np.arange(40) < 20, 1.0, 1.6)[:, None]
    weights = np.where(np.arange(40) < 20, 0.0, 1.0)
    said = fit_correction(found, targets, weights).correct(found)
    assert np.median(said[:, BURST] / found.values[:, BURST]) == pytest.approx(1.6, rel=0.05)
