"""Laws of step times, against cases that are computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from driple.contracts.setting import Setting
from driple.contracts.traffic_formulas import WIRE_FACTOR
from driple.inspector.data.examples import Example, unmeasured
from driple.inspector.time.kernel_law import KernelLaw
from driple.inspector.time.link_seconds import link_seconds
from driple.inspector.time.pooled_law import PooledLaw, SiteNumbers, fit_numbers
from driple.inspector.time.relative_fit import fit_rates
from driple.inspector.time.step_distribution import StepDistribution
from driple.inspector.time.time_table import TimeTable
from driple.inspector.time.work_amounts import AMOUNTS, work_amounts
from driple.pipeline.graph.public import OpGraph

MB = 1e6
GIGABIT = 1e9 / 8 / WIRE_FACTOR
"""Payload bytes per second."""


def example(sent: float = 4 * MB, busiest: float | None = None, **workload: Any) -> Example:
    """A convolution that reads a variable and a tensor, a ReLU, and an update."""
    graph = OpGraph(
        ops=("VariableV2", "Const", "Conv2D", "Relu", "ApplyMomentum"),
        bytes=np.array([100.0, 50.0, 10.0, 10.0, 100.0]),
        flops=np.array([math.nan, math.nan, 1e6, 3.0, math.nan]),
        edges=np.array([[0, 2], [1, 2], [2, 3], [3, 4]]),
    )
    values = {"model": "resnet20", "batch_size": 8, "update": "sync", "framework": "tensorflow", **workload}
    found = unmeasured(graph, values)
    return replace(found, sent_bytes=sent, received_bytes=sent, busiest_bytes=sent if busiest is None else busiest)


@pytest.mark.parametrize(
    ("setting", "workload", "seconds"),
    [
        # The server sends 2 x 4 MB and takes 2 x 4 MB, one after the other.
        ("cpu-p1w2-1g", {}, 16 * MB / GIGABIT),
        ("cpu-p1w2-100m", {}, 160 * MB / GIGABIT),
        # A ring of two: 2 (n - 1) / n of the gradients in each direction, at once.
        ("cpu-p0w2-1g", {"strategy": "allreduce", "topology": "ring"}, 4 * MB / GIGABIT),
        ("cpu-p0w4-1g", {"strategy": "allreduce", "topology": "ring"}, 6 * MB / GIGABIT),
        # The root of a star takes the gradients of three others.
        ("cpu-p0w4-1g", {"strategy": "allreduce", "topology": "star"}, 12 * MB / GIGABIT),
        ("cpu-p0w1-1g", {"strategy": "allreduce"}, 0.0),
        ("cpu-p1w2-pcie", {}, 0.0),
        ("cpu-p1w2-1g", {"network_rate_mbit": 500}, 32 * MB / GIGABIT),
    ],
)
def test_seconds_of_the_busiest_link(setting: str, workload: dict[str, Any], seconds: float) -> None:
    (found,) = link_seconds([example(**workload)], [Setting.parse(setting)])
    assert found == pytest.approx(seconds)


def test_the_server_with_the_larger_share_is_the_busiest() -> None:
    (found,) = link_seconds([example(busiest=3 * MB)], [Setting.parse("cpu-p2w2-1g")])
    assert found == pytest.approx(2 * 2 * 3 * MB / GIGABIT)


def test_unknown_bytes_give_unknown_seconds() -> None:
    (found,) = link_seconds([replace(example(), sent_bytes=None)], [Setting.parse("cpu-p1w2-1g")])
    assert math.isnan(found)


def test_amounts_of_work() -> None:
    found = dict(zip(AMOUNTS, work_amounts([example()])[0].tolist(), strict=True))
    assert found["flops"] == 1e6 + 3
    assert found["convolution_flops"] == 1e6
    assert found["convolution_bytes"] == 10 + 100 + 50  # its output, and what it reads
    assert found["elementwise_bytes"] == 10
    assert found["convolution_ops"] == 1
    assert found["ops"] == 2  # the convolution and the ReLU


def table(amounts: np.ndarray, link: np.ndarray, is_async: np.ndarray) -> TimeTable:
    """Rows of which only FLOPs, ops and the link vary."""
    work = np.zeros((len(amounts), len(AMOUNTS)))
    work[:, list(AMOUNTS).index("flops")] = amounts[:, 0]
    work[:, list(AMOUNTS).index("ops")] = amounts[:, 1]
    ones = np.ones(len(amounts))
    return TimeTable(work, link, is_async, batch=ones, moved=ones, workers=ones, servers=ones)


def synthetic(count: int = 60, seed: int = 0) -> tuple[TimeTable, np.ndarray]:
    random = np.random.default_rng(seed)
    amounts = np.stack([random.uniform(1e8, 1e10, count), random.uniform(100, 4000, count)], axis=1)
    return table(amounts, random.uniform(0.01, 0.5, count), random.random(count) < 0.5), amounts


def test_rates_that_made_the_times_are_found_in_spite_of_an_outlier() -> None:
    found, amounts = synthetic()
    seconds = amounts @ np.array([1e-10, 5e-5]) + 0.01
    seconds[3] *= 5
    columns = np.c_[amounts, np.ones(len(amounts))]
    assert fit_rates(columns, seconds, np.zeros(3), turns=30) == pytest.approx([1e-10, 5e-5, 0.01], rel=0.02)


def test_a_rate_stays_near_its_prior_where_rows_tell_nothing() -> None:
    columns = np.array([[1.0, 0.0], [2.0, 0.0]])
    found = fit_rates(columns, np.array([2.0, 4.0]), np.array([0.0, 0.0]), prior=np.array([1.0, 7.0]))
    assert found[0] == pytest.approx(2.0)


def test_the_pooled_law_tells_sites_apart() -> None:
    found, amounts = synthetic(120)
    sites = [("cpu-p1w2-1g", "m", "tensorflow"), ("cpu-p1w1-1g", "other", "tensorflow")]
    of_row = [sites[number % 2] for number in range(len(amounts))]
    first = np.array([site == sites[0] for site in of_row])
    computing = amounts @ np.array([1e-10, 5e-5])
    share = np.where(first, np.where(found.is_async, 0.5, 0.9), 1.0)
    seconds = np.where(first, 3.0, 1.0) * computing + share * found.link + np.where(first, 0.01, 0.002)
    law = PooledLaw.fit(found, seconds, of_row, turns=40)
    numbers = law.numbers[sites[0]], law.numbers[sites[1]]
    assert numbers[0].k / numbers[1].k == pytest.approx(3.0, rel=0.05)
    assert numbers[0].n_async == pytest.approx(0.5, rel=0.1)
    assert numbers[0].n_sync == pytest.approx(0.9, rel=0.1)
    again = law.terms(found, [law.numbers[site] for site in of_row]).step
    assert np.abs(again / seconds - 1).max() < 0.1


def test_few_rows_stay_near_the_numbers_of_a_like_site() -> None:
    found, amounts = synthetic(2)
    found = replace(found, is_async=np.array([False, False]))  # nothing tells of asynchronous steps
    prior = SiteNumbers(1.0, 0.9, 0.5, 0.01)
    computing = amounts @ np.array([1e-10, 5e-5])
    seconds = 2 * computing + 0.9 * found.link + 0.01
    held = fit_numbers(computing, found, seconds, prior, strength=100.0)
    assert tuple(held) == pytest.approx(tuple(prior), rel=0.1)
    free = fit_numbers(computing, found, seconds, prior, strength=0.0)
    assert free.n_async == prior.n_async
    assert np.abs(free.k * computing + free.n_sync * found.link - seconds).mean() < seconds.mean()


def test_the_kernel_law_learns_what_the_pooled_law_leaves_over() -> None:
    found, amounts = synthetic(150)
    sites = [("cpu-p1w2-1g", "m", "tensorflow")] * len(amounts)
    # Computing hides the link: no sum of both can tell this.
    seconds = np.maximum(amounts @ np.array([1e-10, 5e-5]), 2 * found.link) + 0.01
    families = [str(number % 10) for number in range(len(amounts))]
    pooled = PooledLaw.fit(found, seconds, sites)
    terms = pooled.terms(found, [pooled.numbers[site] for site in sites])
    kernel = KernelLaw.fit(found, terms, seconds, families)
    errors = [np.abs(one / seconds - 1).mean() for one in (terms.step, kernel.predict(found, terms))]
    assert errors[1] < 0.5 * errors[0]


def test_a_distribution_by_hand() -> None:
    errors = [math.log(ratio) for ratio in (0.5, 0.8, 1.0, 1.25, 2.0, 4.0, 0.9, 1.1, 0.95)]
    found = StepDistribution.of(10.0, errors)
    assert found.errors == tuple(sorted(errors))
    # Ranks of 9 errors: (9 + 1) * 0.1 = 1 and (9 + 1) * 0.9 = 9.
    assert found.interval(0.8) == pytest.approx((5.0, 40.0))
    assert found.probability_within(10.0) == pytest.approx(5 / 9)
    assert found.probability_within(40.0) == 1.0
    assert found.probability_within(0.0) == 0.0


def test_too_few_errors_give_an_open_interval() -> None:
    assert StepDistribution.of(10.0, [0.1, -0.1]).interval(0.9) == (0.0, math.inf)


def test_widening_makes_intervals_wider() -> None:
    errors = np.linspace(-0.3, 0.3, 99).tolist()
    plain, wide = StepDistribution.of(1.0, errors), StepDistribution.of(1.0, errors, widening=2.0)
    assert wide.interval()[0] < plain.interval()[0] < plain.interval()[1] < wide.interval()[1]


def test_intervals_hold_as_often_as_they_say() -> None:
    random = np.random.default_rng(1)
    errors, fresh = random.normal(0, 0.2, 400), random.normal(0, 0.2, 4000)
    low, high = StepDistribution.of(1.0, errors.tolist()).interval(0.9)
    held = float(np.mean((np.exp(fresh) >= low) & (np.exp(fresh) <= high)))
    assert 0.86 < held < 0.94
