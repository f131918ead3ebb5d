"""Which server keeps what, and how many steps are enough."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.run_spec import LEAST_STEPS, Measurement
from driple.contracts.setting import Setting
from driple.contracts.sharding import BALANCED, ROUND_ROBIN, Sharding
from driple.workloads.runtime.cluster import cluster_of, worker_device
from driple.workloads.runtime.job import job_without_hosts, workload_of
from driple.workloads.strategies.ps_worker import Pace, RunningMean


@given(sizes=st.lists(st.integers(0, 10**9), max_size=50), servers=st.integers(1, 5))
def test_no_server_has_more_than_another_by_more_than_one_variable(sizes: list[int], servers: int) -> None:
    placing = Sharding(servers, BALANCED)
    for size in sizes:
        placing.place(size)
    assert sum(placing.loads) == sum(sizes)
    assert max(placing.loads) - min(placing.loads) <= max(sizes, default=0)


def test_the_first_variable_goes_to_server_0_and_round_robin_goes_round() -> None:
    assert Sharding(3, BALANCED).place(8) == 0
    turn = Sharding(3, ROUND_ROBIN)
    assert [turn.place(8) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_cluster_and_devices_follow_the_setting() -> None:
    job = job_without_hosts(Setting.parse("cpu-p1w2-1g"), workload_of("resnet20", None, 8))
    assert cluster_of(job) == {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}
    assert worker_device(job, 1) == "/job:worker/replica:0/task:1/device:CPU:0"
    ring = job_without_hosts(Setting.parse("v100-p0w2-1g"), workload_of("resnet20", None, 8, strategy="allreduce"))
    assert list(cluster_of(ring)) == ["worker"]
    assert worker_device(ring, 0).endswith("/device:GPU:0")


def test_a_number_of_steps_counts_after_warm_up() -> None:
    pace = Pace(Measurement(steps=3, warmup_steps=2))
    assert [pace.over(done, now=0.0) for done in range(6)] == [False] * 5 + [True]


def test_a_duration_counts_from_the_end_of_warm_up() -> None:
    pace = Pace(Measurement(duration_s=10.0, warmup_steps=2))
    assert not pace.over(1, now=1000.0)
    assert not pace.over(2, now=1000.0)
    assert not pace.over(50, now=1009.0)
    assert pace.over(51, now=1010.0)


def test_a_run_until_its_steps_are_known_ends_between_the_least_and_the_most() -> None:
    def steps(times: list[float], until: float | None) -> int:
        pace, now = Pace(Measurement(steps=20, warmup_steps=2, until_pct=until)), 0.0
        for done in range(100):
            if pace.over(done, now):
                return done
            now += times[done % len(times)]
        raise AssertionError("it never ends")

    even, uneven = [1.0], [1.0, 1.0, 1.3]
    assert steps(even, None) == steps([0.1, 5.0], 1.0) == 22
    assert steps(even, 1.0) == 2 + LEAST_STEPS
    assert 2 + LEAST_STEPS < steps(uneven, 4.0) < steps(uneven, 3.5) < 22
    assert Measurement(steps=20, until_pct=3.0).least_steps == LEAST_STEPS
    assert Measurement(steps=4, until_pct=3.0).least_steps == 4 and Measurement(steps=20).least_steps == 20


def test_the_running_mean_is_that_of_the_statistics_module() -> None:
    values = [1.0, 1.2, 0.7, 1.9, 1.1]
    mean = RunningMean()
    assert mean.relative_error == math.inf
    for value in values:
        mean.add(value)
    expected = statistics.stdev(values) / len(values) ** 0.5 / statistics.fmean(values)
    assert mean.relative_error == pytest.approx(expected)
