"""The law of costs finds the rates that made the times, and says how much more work takes how much longer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.base_model.cost_model import CostModel
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.workload_features import WORKLOAD_FEATURES

BURST, IDLE, HEIGHT = (COLUMNS.index(name) for name in ("net_rx_burst_s", "net_rx_idle_s", "net_rx_burst_bytes_per_s"))
COMPUTE = COLUMNS.index("gpu_burst_s")
FLOPS, RECEIVED = (WORKLOAD_FEATURES.index(name) for name in ("log_megaflops", "log_received_kilobytes"))


def workloads(rows: int, most: float, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    facts = np.full((rows, len(WORKLOAD_FEATURES)), np.nan)
    for column in (FLOPS, RECEIVED):
        facts[:, column] = np.log1p(random.uniform(10, most, rows))
    facts[:, WORKLOAD_FEATURES.index("log_busiest_kilobytes")] = facts[:, RECEIVED]
    facts[:, WORKLOAD_FEATURES.index("is_async")] = np.arange(rows) % 2
    return facts


def truth(facts: FloatArray) -> FloatArray:
    flops, received = (np.expm1(facts[:, column]) for column in (FLOPS, RECEIVED))
    is_sync = 1 - facts[:, WORKLOAD_FEATURES.index("is_async")]
    values = np.full((len(facts), len(COLUMNS)), np.nan)
    values[:, COMPUTE] = 0.01 + 2e-4 * flops
    values[:, BURST] = 0.002 + 1e-5 * received
    values[:, IDLE] = (2e-4 + 1e-4 * is_sync) * flops
    values[:, HEIGHT] = 1000 * received / values[:, BURST]
    return values


def fitted(rows: int = 60) -> CostModel:
    facts = workloads(rows, 1000)
    return CostModel.fit(facts, truth(facts), np.arange(rows) % 5)[0]


def test_it_holds_far_beyond_what_was_seen() -> None:
    facts = workloads(20, 100_000, seed=1)
    found, wanted = fitted().estimate(facts), truth(facts)
    for place in (COMPUTE, BURST, IDLE, HEIGHT):
        np.testing.assert_allclose(found[:, place], wanted[:, place], rtol=0.08, err_msg=COLUMNS[place])
    assert np.isnan(np.delete(found, (COMPUTE, BURST, IDLE, HEIGHT), axis=1)).all()


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e150])
def test_a_law_does_not_hang_on_the_unit_of_time(unit: float) -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    known, said = CostModel.fit(facts, values, np.arange(60) % 5)
    times = [COMPUTE, BURST, IDLE]
    values[:, times] *= unit
    law, held = CostModel.fit(facts, values, np.arange(60) % 5)
    np.testing.assert_allclose(held[:, times] / unit, said[:, times], rtol=1e-9)
    np.testing.assert_allclose(law.estimate(facts)[:, times] / unit, known.estimate(facts)[:, times], rtol=1e-9)


def test_rates_are_never_negative() -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    values[:, COMPUTE] = 1.0 / np.expm1(facts[:, FLOPS])  # less for more: no law can say that
    law, held = CostModel.fit(facts, values, np.arange(60) % 5)
    assert all(rate >= 0 for rates in law.rates if rates is not None for rate in rates)
    assert np.isfinite(held[:, COMPUTE]).all()


def test_a_row_is_judged_without_its_own_fold() -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    folds: NDArray[np.int64] = np.arange(60) % 5
    changed = values.copy()
    changed[folds != 2, COMPUTE] *= 10
    held, other = (CostModel.fit(facts, each, folds)[1] for each in (values, changed))
    assert (other[folds == 2, COMPUTE] > 7 * held[folds == 2, COMPUTE]).all()  # its own rows say that it is as before


def test_a_few_rows_of_another_law_do_not_bend_it() -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    values[::6, COMPUTE] *= 10
    values[::6, HEIGHT] *= 0.2
    law, _ = CostModel.fit(facts, values, np.arange(60) % 5)
    found, wanted = law.estimate(facts), truth(facts)
    for place in (COMPUTE, HEIGHT):
        np.testing.assert_allclose(found[:, place], wanted[:, place], rtol=0.1, err_msg=COLUMNS[place])


def test_what_a_few_rows_say_of_a_class_is_not_drawn_out() -> None:
    """Else a row with a hundred times as many lookups as any before would take a hundred times as much for them."""
    facts = workloads(60, 1000)
    lookups = WORKLOAD_FEATURES.index("log_lookup_kilobytes")
    facts[:, lookups] = np.log1p(np.where(np.arange(60) < 12, 10.0, 0.0))
    values = truth(facts)
    values[:12, COMPUTE] += 0.1
    law, _ = CostModel.fit(facts, values, np.arange(60) % 5)
    more = facts[:1].copy()
    said = law.estimate(more)[0, COMPUTE]
    for often in (1.0, 100.0):
        more[:, lookups] = np.log1p(10.0 * often)
        assert law.estimate(more)[0, COMPUTE] == pytest.approx(said)
    more[:, lookups] = 0.0
    assert law.estimate(more)[0, COMPUTE] < 0.8 * said


def test_what_is_unknown_counts_as_usual_and_not_as_nothing() -> None:
    facts = workloads(60, 1000)
    law = fitted()
    unknown = facts.copy()
    unknown[:, [RECEIVED, WORKLOAD_FEATURES.index("log_busiest_kilobytes")]] = np.nan
    found, wanted = law.estimate(unknown)[:, BURST], truth(facts)[:, BURST]
    assert np.median(found) == pytest.approx(np.median(wanted), rel=0.3)
    assert np.ptp(found) < 0.01 * np.median(found)


def test_the_height_of_other_bursts_has_no_law() -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    values[:, COLUMNS.index("gpu_burst_pct")] = 90.0
    law, held = CostModel.fit(facts, values, np.arange(60) % 5)
    assert law.rates[COLUMNS.index("gpu_burst_pct")] is None
    unknown = facts[:3].copy()
    unknown[:, RECEIVED] = np.nan
    assert np.isnan(law.estimate(unknown)[:, HEIGHT]).all()
    assert np.isfinite(held[:, HEIGHT]).all()


def test_a_target_with_few_values_has_no_law() -> None:
    facts = workloads(60, 1000)
    values = truth(facts)
    values[5:, [BURST, HEIGHT]] = np.nan
    law, held = CostModel.fit(facts, values, np.arange(60) % 5)
    assert law.rates[BURST] is None
    assert law.rates[HEIGHT] is None
    assert np.isnan(held[:, BURST]).all()


def test_it_travels_as_plain_values() -> None:
    law = fitted()
    assert from_plain(CostModel, to_plain(law)) == law
    with pytest.raises(BadInput, match="no such amount"):
        CostModel(("log_moonlight_ops",), (1.0,), (1.0,), law.rates)
    for usual, greatest in ((law.usual, (1.0,)), ((1.0,), law.greatest)):
        with pytest.raises(BadInput, match="usual and greatest of each"):
            CostModel(law.amounts, usual, greatest, law.rates)
    with pytest.raises(BadInput, match="rates of each target"):
        CostModel(law.amounts, law.usual, law.greatest, ((1.0,), *law.rates[1:]))


def test_a_law_that_cannot_be_is_refused() -> None:
    law = fitted()
    for changes in (
        {"rates": tuple(each and (-1.0, *each[1:]) for each in law.rates)},
        {"greatest": (-1.0, *law.greatest[1:])},
        {"amounts": (law.amounts[1], *law.amounts[1:])},
    ):
        with pytest.raises(BadInput, match="negative|twice"):
            dataclasses.replace(law, **changes)
