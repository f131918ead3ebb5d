"""Samples: the published three features, ours, and their way through inspector.json."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import inspector_work as work
import numpy as np
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.inspector.data.examples import PublishedGraph, unmeasured
from driple.inspector.data.node_features import DRIPLE, NAMES, PAPER, Featuriser
from driple.inspector.model.model_config import ONCE
from driple.pipeline.graph.op_classes import CLASSES, COUNTED, OTHER, class_numbers, class_of
from driple.pipeline.graph.public import FEATURES, OpGraph, published_frequency, read_graph, recipe_of, undirected

RUNS = Path(__file__).parents[2] / "data" / "runs"
REAL = sorted(RUNS.glob("*/graph/worker.parquet"))


def column(kind: str, name: str) -> int:
    return NAMES[kind].index(name)


def four_ops() -> OpGraph:
    """Conv2D -> Relu -> MatMul -> Sum."""
    return OpGraph(
        ("Conv2D", "Relu", "MatMul", "Sum"),
        np.array([4000.0, 4000.0, 2000.0, 8.0]),
        np.array([3e6, np.nan, 5e6, 1e6]),
        np.array([[0, 1], [1, 2], [2, 3]]),
    )


def test_paper_is_what_the_recipe_gives() -> None:
    graph = work.chain(5)
    recipe = recipe_of([graph], "uniform:6")
    sample = Featuriser(PAPER, recipe).sample(graph)
    grouped = recipe.group(graph)
    np.testing.assert_array_equal(sample.features, grouped.features)
    np.testing.assert_array_equal(sample.edges, undirected(grouped.edges, 6))
    assert Featuriser(PAPER, recipe).names == FEATURES


def test_every_op_a_node() -> None:
    graph = four_ops()
    sample = Featuriser(DRIPLE, recipe_of([graph], "none")).sample(graph)
    found = {name: sample.features[:, number].tolist() for number, name in enumerate(NAMES[DRIPLE])}
    assert found["frequency"] == [0.25] * 4
    assert found["kilobytes"] == [4.0, 4.0, 2.0, 0.008]
    assert found["ops"] == [1.0] * 4
    assert found["megaflops"] == [3.0, 0.0, 5.0, 1.0]
    assert found["convolution_megaflops"] == [3.0, 0.0, 0.0, 0.0]
    assert found["matmul_megaflops"] == [0.0, 0.0, 5.0, 0.0]
    assert found["convolution_ops"] == [1.0, 0.0, 0.0, 0.0]
    assert found["elementwise_ops"] == [0.0, 1.0, 0.0, 0.0]
    assert found["elementwise_kilobytes"] == [0.0, 4.0, 0.0, 0.0]
    assert found["reduction_kilobytes"] == [0.0, 0.0, 0.0, 0.008]
    assert sample.edges.tolist() == [[0, 1], [1, 2], [2, 3]]


def with_a_loop() -> OpGraph:
    """Conv2D -> a loop around a MatMul -> Sum."""
    ops = ("Conv2D", "Enter", "Merge", "MatMul", "NextIteration", "Switch", "Exit", "Sum")
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 2], [3, 5], [5, 6], [6, 7]])
    return OpGraph(ops, np.full(8, 1000.0), np.array([3e6, *[np.nan] * 2, 5e6, *[np.nan] * 4]), edges)


def test_ops_of_a_loop_count_in_every_iteration() -> None:
    graph = with_a_loop()
    featuriser = Featuriser(DRIPLE, recipe_of([graph], "uniform:1"))
    item = unmeasured(graph, {"sequence_length": 10})
    total = dict(zip(featuriser.names, featuriser.sample_of(item).features[0], strict=True))
    assert total["megaflops"] == 3.0 + 10 * 5.0
    assert total["matmul_megaflops"] == total["matmul_kilobytes"] * 5 == 50.0
    assert total["matmul_ops"] == 1.0
    assert total["ops"] == 8.0  # of the graph
    assert total["kilobytes"] == pytest.approx(44.0)
    assert total["frequency"] == 1.0  # of the ops in the graph
    assert featuriser.sample_of(item) is featuriser.sample_of(unmeasured(graph, {"sequence_length": 10}))
    again = Featuriser.from_plain(json.loads(json.dumps(featuriser.to_plain())))
    np.testing.assert_array_equal(again.sample_of(item).features, featuriser.sample_of(item).features)


def test_inspectors_of_earlier_releases_count_loops_once_and_so_can_new_ones() -> None:
    graph = with_a_loop()
    item = unmeasured(graph, {"sequence_length": 10})
    once = Featuriser(DRIPLE, recipe_of([graph], "uniform:1"), ONCE)
    earlier = {name: value for name, value in once.to_plain().items() if name != "loops"}
    for featuriser in (once, Featuriser.from_plain(earlier)):
        total = dict(zip(featuriser.names, featuriser.sample_of(item).features[0], strict=True))
        assert (total["megaflops"], total["ops"], total["kilobytes"]) == (8.0, 8.0, 8.0)


def test_published_features_count_once() -> None:
    graph = with_a_loop()
    featuriser = Featuriser(PAPER, recipe_of([graph], "uniform:1"))
    assert featuriser.sample_of(unmeasured(graph, {"sequence_length": 10})).features.tolist() == [[1.0, 8000.0, 8.0]]


def test_groups_add_up_to_the_graph() -> None:
    graph = work.chain(6)
    sample = Featuriser(DRIPLE, recipe_of([graph], "uniform:7")).sample(graph)
    assert sample.features.shape == (7, len(NAMES[DRIPLE]))
    total = dict(zip(NAMES[DRIPLE], sample.features.sum(axis=0), strict=True))
    assert total["ops"] == len(graph.ops)
    assert total["kilobytes"] == pytest.approx(graph.bytes.sum() / 1e3)
    assert total["megaflops"] == pytest.approx(np.nansum(graph.flops) / 1e6)
    assert total["megaflops"] == pytest.approx(sum(total[f"{name}_megaflops"] for name in COUNTED))
    assert total["convolution_ops"] == 6
    assert total["convolution_gradient_ops"] == 12
    assert sum(total[f"{name}_ops"] for name in CLASSES) == len(graph.ops)
    assert sum(total[f"{name}_kilobytes"] for name in CLASSES) == pytest.approx(total["kilobytes"])


def test_edges_are_undirected_and_stand_once() -> None:
    graph = work.chain(8)
    sample = Featuriser(DRIPLE, recipe_of([graph], "uniform:5")).sample(graph)
    assert (sample.edges[:, 0] < sample.edges[:, 1]).all()
    assert len({tuple(edge) for edge in sample.edges.tolist()}) == len(sample.edges)


def test_a_published_graph_has_its_three_features_and_zeros() -> None:
    graph = PublishedGraph(np.array([[0.1, 2000.0, 3.0], [0.2, 500.0, 1.0]]), np.array([[0, 1]]))
    recipe = recipe_of([work.chain(1)], "uniform:20")
    assert Featuriser(PAPER, recipe).sample(graph).features is graph.features
    sample = Featuriser(DRIPLE, recipe).sample(graph)
    assert sample.features[:, :3].tolist() == [[0.1, 2.0, 3.0], [0.2, 0.5, 1.0]]
    assert not sample.features[:, 3:].any()
    assert sample.edges is graph.edges


def test_a_graph_is_grouped_once_and_not_kept_alive() -> None:
    graph = work.chain(3)
    featuriser = Featuriser(DRIPLE, recipe_of([graph], "uniform:4"))
    assert featuriser.sample(graph) is featuriser.sample(graph)
    assert len(featuriser._made) == 1
    del graph
    gc.collect()
    assert len(featuriser._made) == 0


@pytest.mark.parametrize("kind", [PAPER, DRIPLE])
def test_it_survives_inspector_json(kind: str) -> None:
    graph = work.chain(4)
    featuriser = Featuriser(kind, recipe_of([graph], "sqrt", seed=2))
    again = Featuriser.from_plain(json.loads(json.dumps(featuriser.to_plain(), allow_nan=False)))
    assert again.recipe == featuriser.recipe
    np.testing.assert_array_equal(again.sample(graph).features, featuriser.sample(graph).features)


def test_what_it_refuses() -> None:
    recipe = recipe_of([work.chain(1)], "sqrt")
    with pytest.raises(UnknownName, match="features"):
        Featuriser("ours", recipe)
    with pytest.raises(UnknownName, match="loops"):
        Featuriser(DRIPLE, recipe, "twice")
    plain = Featuriser(DRIPLE, recipe).to_plain()
    with pytest.raises(BadInput, match="train again"):
        Featuriser.from_plain({**plain, "names": plain["names"][:-1]})
    with pytest.raises(BadInput, match="expected kind, names, recipe and loops"):
        Featuriser.from_plain([plain])
    with pytest.raises(BadInput, match="policy"):
        Featuriser.from_plain({**plain, "recipe": {**plain["recipe"], "policy": 3}})


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("Conv2D", "convolution"),
        ("Conv2DBackpropInput", "convolution_gradient"),
        ("Conv3DBackpropFilterV2", "convolution_gradient"),
        ("DepthwiseConv2dNativeBackpropFilter", "depthwise"),
        ("BatchMatMulV2", "matmul"),
        ("FusedBatchNormGradV3", "normalisation"),
        ("MaxPoolGrad", "pooling"),
        ("AddV2", "elementwise"),
        ("BiasAddGrad", "reduction"),
        ("ConcatV2", "movement"),
        ("ResourceGather", "lookup"),
        ("UnsortedSegmentSum", "lookup"),
        ("ResourceApplyAdam", "update"),
        ("ResourceAccumulatorApplyGradient", "update"),
        ("VariableV2", "update"),
        ("Identity", "alias"),
        ("NextIteration", "loop"),
        ("TensorArrayScatterV3", "loop"),
        ("Const", "control"),
        ("ShapeN", "control"),
        ("_Recv", "control"),
        ("CudnnRNNV3", "matmul"),
        ("MyOwnOp", OTHER),
    ],
)
def test_classes(op: str, wanted: str) -> None:
    assert class_of(op) == wanted


def test_no_op_of_real_graphs_is_without_a_class() -> None:
    assert REAL
    for path in REAL:
        graph = read_graph(path)
        assert OTHER not in {class_of(op) for op in graph.ops}
        assert [CLASSES[number] for number in class_numbers(graph.ops)] == [class_of(op) for op in graph.ops]
    # Of the 159 op types of the published table these two belong to no training step.
    assert {op for op in published_frequency() if class_of(op) == OTHER} == {
        "InitializeTableFromTextFileV2",
        "MergeV2Checkpoints",
    }


def test_flops_of_real_graphs_are_those_of_the_counted_classes() -> None:
    for path in REAL:
        graph = read_graph(path)
        sample = Featuriser(DRIPLE, recipe_of([graph], "uniform:20")).sample(graph)
        counted = sum(sample.features[:, column(DRIPLE, f"{name}_megaflops")].sum() for name in COUNTED)
        assert counted > 0.98 * sample.features[:, column(DRIPLE, "megaflops")].sum()
