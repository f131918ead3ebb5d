"""Facts: what is known before a run, and what is not."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import inspector_work as work
import numpy as np
import pytest

from driple.inspector.data import workload_features as module
from driple.inspector.data.examples import Example, PublishedGraph, unmeasured
from driple.inspector.data.workload_features import WORKLOAD_FEATURES, workload_feature_table, workload_features
from driple.inspector.model.model_config import ONCE
from driple.pipeline.graph.public import OpGraph, read_graph

GRAPHS = Path(__file__).parents[2] / "data" / "graphs"
RUNS = Path(__file__).parents[2] / "data" / "runs"


def facts(example: Example) -> dict[str, float]:
    return dict(zip(WORKLOAD_FEATURES, workload_features(example).tolist(), strict=True))


def of(**workload: Any) -> dict[str, float]:
    return facts(unmeasured(work.chain(1), workload))


def test_every_fact_has_one_name() -> None:
    assert len(set(WORKLOAD_FEATURES)) == len(WORKLOAD_FEATURES)
    made = {
        **module._of_workload(unmeasured(work.chain(1), {"model": "x", "dataset": "y", "framework": "torch"})),
        **module._of_ops(work.chain(1), 1),
    }
    assert set(made) == set(WORKLOAD_FEATURES)


def test_the_options_of_a_workload() -> None:
    found = of(
        model="vgg16",
        dataset="imagenet",
        batch_size=32,
        image_size=224,
        width=0.5,
        optimiser="adam",
        update="async",
        strategy="ps",
        network_rate_mbit=100.0,
        network_delay_ms=3.0,
        network_loss_pct=0.5,
        threads=1,
    )
    assert found["log_batch_size"] == pytest.approx(math.log(32))
    assert found["log_image_size"] == pytest.approx(math.log(224))
    assert found["log_width"] == pytest.approx(math.log(0.5))
    assert math.isnan(found["log_sequence_length"])
    assert (found["has_images"], found["has_sequences"]) == (1.0, 0.0)
    assert (found["is_async"], found["is_allreduce"]) == (1.0, 0.0)
    assert [found[f"is_{name}"] for name in ("sgd", "momentum", "rmsprop", "adam")] == [0.0, 0.0, 0.0, 1.0]
    assert (found["is_limited"], found["network_loss_pct"]) == (1.0, 0.5)
    assert found["log_network_rate_mbit"] == pytest.approx(math.log(100))
    assert found["log_network_delay_ms"] == pytest.approx(math.log(4))


def test_what_is_not_said_is_not_known() -> None:
    found = of()
    for name in module.DECLARED_FEATURES:
        assert math.isnan(found[name]), name
    assert not math.isnan(found["log_ops"])


def test_traffic() -> None:
    example = unmeasured(dataclasses.replace(work.chain(1), bytes_received=9000.0, bytes_sent=0.0), {})
    found = facts(example)
    assert found["log_received_kilobytes"] == pytest.approx(math.log(10))
    assert found["log_sent_kilobytes"] == 0.0
    assert found["log_busiest_kilobytes"] == found["log_received_kilobytes"]  # of a row that does not say it
    told = unmeasured(dataclasses.replace(work.chain(1), bytes_received=9000.0, bytes_busiest=5000.0), {})
    assert facts(told)["log_busiest_kilobytes"] == pytest.approx(math.log(6))


def test_the_graph_summed_up() -> None:
    graph = OpGraph(
        ("Conv2D", "Relu", "Conv2D", "Sum"),
        np.array([4000.0, 3000.0, 2000.0, 0.0]),
        np.array([3e6, np.nan, 5e6, 1e6]),
        np.array([[0, 1], [0, 3], [1, 2], [2, 3]]),
    )
    found = facts(unmeasured(graph, {}))
    assert found["log_ops"] == pytest.approx(math.log(5))
    assert found["log_edges"] == pytest.approx(math.log(5))
    assert found["log_levels"] == pytest.approx(math.log(5))
    assert found["log_kilobytes"] == pytest.approx(math.log(10))
    assert found["log_largest_kilobytes"] == pytest.approx(math.log(5))
    assert found["log_megaflops"] == pytest.approx(math.log(10))
    assert found["log_largest_megaflops"] == pytest.approx(math.log(6))
    assert found["log_convolution_ops"] == pytest.approx(math.log(3))
    assert found["log_convolution_kilobytes"] == pytest.approx(math.log(7))
    assert found["log_convolution_megaflops"] == pytest.approx(math.log(9))
    assert found["log_elementwise_megaflops"] == 0.0
    assert found["log_matmul_ops"] == 0.0


def test_the_longest_way_counts_a_loop_once() -> None:
    assert facts(unmeasured(read_graph(GRAPHS / "loop.pb"), {}))["log_levels"] > math.log(3)


def test_ops_of_a_loop_count_in_every_iteration_or_once() -> None:
    ops = ("Enter", "Merge", "MatMul", "NextIteration", "Sum")
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 1]])
    graph = OpGraph(ops, np.full(5, 1000.0), np.array([np.nan, np.nan, 2e6, np.nan, 1e6]), edges)
    of_ten, of_one = unmeasured(graph, {"sequence_length": 10}), unmeasured(graph, {"sequence_length": 1})
    found = facts(of_ten)
    assert math.expm1(found["log_megaflops"]) == pytest.approx(21)
    assert math.expm1(found["log_matmul_megaflops"]) == pytest.approx(20)
    assert math.expm1(found["log_ops"]) == pytest.approx(5)  # of the graph
    assert math.expm1(found["log_loop_kilobytes"]) == pytest.approx(21)
    assert math.expm1(found["log_largest_megaflops"]) == pytest.approx(2)
    graph_facts = [WORKLOAD_FEATURES.index(name) for name in module.GRAPH_FACTS]
    once = workload_features(of_ten, ONCE)
    np.testing.assert_array_equal(once[graph_facts], workload_features(of_one)[graph_facts])
    assert once[WORKLOAD_FEATURES.index("log_megaflops")] == pytest.approx(math.log(4))


def test_a_graph_without_flops_has_none_and_not_zero() -> None:
    graph = work.chain(2)
    found = facts(unmeasured(dataclasses.replace(graph, flops=np.full(len(graph.ops), np.nan)), {}))
    for name in module.GRAPH_FACTS:
        assert math.isnan(found[name]) == name.endswith("_megaflops"), name


def test_a_published_graph() -> None:
    graph = PublishedGraph(np.array([[0.1, 2000.0, 3.0], [0.2, 7000.0, 6.0]]), np.array([[0, 1]]))
    found = facts(unmeasured(graph, {}))
    known = {name: value for name, value in found.items() if not math.isnan(value)}
    assert known == {
        "log_ops": pytest.approx(math.log(10)),
        "log_edges": pytest.approx(math.log(2)),
        "log_kilobytes": pytest.approx(math.log(10)),
        "log_largest_kilobytes": pytest.approx(math.log(8)),
    }


def test_real_graphs_have_finite_facts() -> None:
    for path in sorted(RUNS.glob("*/graph/worker.parquet")):
        found = facts(unmeasured(read_graph(path), {}))
        assert all(math.isfinite(found[name]) for name in module.GRAPH_FACTS)
        assert found["log_megaflops"] > found["log_largest_megaflops"] > 1


def test_a_table(tmp_path: Path) -> None:
    items = work.examples(tmp_path).items
    table = workload_feature_table(items)
    assert table.shape == (len(items), len(WORKLOAD_FEATURES))
    np.testing.assert_array_equal(table[3], workload_features(items[3]))
    assert workload_feature_table([]).shape == (0, len(WORKLOAD_FEATURES))
