"""Grouping: what holds for every graph, every policy and every process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.pipeline.graph.levels import levels
from driple.pipeline.graph.public import (
    OpGraph,
    Recipe,
    SizeBatches,
    forget_wirings,
    group,
    op_frequency,
    published_frequency,
    read_graph,
    recipe_of,
    size_batches,
    undirected,
    unknown_ops,
)

OPS = ("Conv2D", "Relu", "AddV2", "NextIteration", "Const")
POLICIES = ("none", "uniform:1", "uniform:4", "uniform:1000", "sqrt", "linear:3")


@st.composite
def graphs(draw: st.DrawFn, connected: bool = True, most: int = 30) -> OpGraph:
    nodes = draw(st.integers(1, most))
    ops = draw(st.lists(st.sampled_from(OPS), min_size=nodes, max_size=nodes))
    number = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(number, number), max_size=2 * nodes))
    if connected:
        edges += [(draw(st.integers(0, position - 1)), position) for position in range(1, nodes)]
    sizes = draw(st.lists(st.integers(0, 10**9), min_size=nodes, max_size=nodes))
    return built(ops, edges, sizes)


def built(ops: list[str], edges: list[tuple[int, int]], sizes: list[int] | None = None) -> OpGraph:
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    return OpGraph(tuple(ops), np.asarray(sizes or [1] * len(ops), float), np.full(len(ops), np.nan), pairs)


def chain(nodes: int) -> OpGraph:
    return built(["Relu"] * nodes, [(position, position + 1) for position in range(nodes - 1)])


def in_one_piece(nodes: set[int], edges: list[list[int]]) -> bool:
    reached = {min(nodes)}
    while more := {b for pair in edges for a, b in (pair, pair[::-1]) if a in reached and b in nodes} - reached:
        reached |= more
    return reached == nodes


@given(graphs(), st.sampled_from(POLICIES), st.integers(0, 5))
def test_every_op_is_in_one_group_and_no_group_is_empty_or_in_pieces(graph: OpGraph, policy: str, seed: int) -> None:
    grouped = group(graph, policy, op_frequency([graph]), seed)
    nodes, count = len(graph.ops), len(grouped.features)
    wanted = {
        "none": nodes,
        "uniform:1": 1,
        "uniform:4": min(4, nodes),
        "uniform:1000": nodes,
        "sqrt": int(np.floor(np.sqrt(nodes) + 0.5)),
        "linear:3": max(1, int(np.floor(nodes / 3 + 0.5))),
    }
    assert count == wanted[policy]
    assert grouped.groups.shape == (nodes,)
    assert sorted(set(grouped.groups.tolist())) == list(range(count))
    for number in range(count):
        assert in_one_piece(set(np.flatnonzero(grouped.groups == number).tolist()), graph.edges.tolist())


@settings(max_examples=50)
@given(graphs(connected=False), st.sampled_from(POLICIES))
def test_features_are_sums_and_edges_are_those_between_groups(graph: OpGraph, policy: str) -> None:
    frequency = op_frequency([graph])
    grouped = group(graph, policy, frequency)
    per_op = [frequency[op] for op in graph.ops]
    for number, row in enumerate(grouped.features):
        mine = grouped.groups == number
        assert row == pytest.approx([np.dot(mine, per_op), np.dot(mine, graph.bytes), mine.sum()])
    pairs = {(int(grouped.groups[a]), int(grouped.groups[b])) for a, b in graph.edges}
    assert grouped.edges.tolist() == sorted([a, b] for a, b in pairs if a != b)
    assert (grouped.features.dtype, grouped.edges.dtype, grouped.groups.dtype) == (np.float64, np.int64, np.int64)


@settings(max_examples=50)
@given(graphs(connected=False), st.integers(1, 50))
def test_a_graph_in_pieces_gets_as_many_groups_as_any_other(graph: OpGraph, count: int) -> None:
    grouped = group(graph, f"uniform:{count}", {})
    assert len(grouped.features) == min(count, len(graph.ops))
    assert (grouped.features[:, 2] > 0).all()


def test_pieces_share_groups_by_their_size() -> None:
    edges = [(position, position + 1) for position in range(79)] + [(80, 81)]
    grouped = group(built(["Relu"] * 83, edges), "uniform:10", {})  # pieces of 80, 2 and 1
    assert [len(set(grouped.groups[part].tolist())) for part in (slice(80), slice(80, 82), slice(82, 83))] == [8, 1, 1]
    few = group(built(["Relu"] * 83, edges), "uniform:2", {})
    assert few.groups.tolist() in ([0] * 80 + [1] * 3, [1] * 80 + [0] * 3)


@settings(max_examples=30)
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_edges_does_not_matter(graph: OpGraph, shuffler: random.Random) -> None:
    edges = graph.edges.tolist()
    shuffler.shuffle(edges)
    other = built(list(graph.ops), edges * 2, graph.bytes.tolist())
    one, two = (group(item, "uniform:4", {}) for item in (graph, other))
    assert one.groups.tolist() == two.groups.tolist()
    assert one.edges.tolist() == two.edges.tolist()


@settings(max_examples=30)
@given(graphs(), st.integers(0, 5))
def test_sizes_make_no_groups_and_what_is_kept_of_one_graph_holds_for_the_other(graph: OpGraph, seed: int) -> None:
    other = built(list(graph.ops), graph.edges.tolist(), [size + 7 for size in graph.bytes.astype(int).tolist()])
    one, two = (group(item, "uniform:4", {}, seed) for item in (graph, other))
    forget_wirings()
    anew = group(other, "uniform:4", {}, seed)
    assert one.groups.tolist() == two.groups.tolist() == anew.groups.tolist()
    assert two.features.tolist() == anew.features.tolist()
    assert two.features[:, 1].tolist() == pytest.approx((one.features[:, 1] + 7 * one.features[:, 2]).tolist())
    assert other.levels.tolist() == levels(graph.ops, graph.edges)[0].tolist()
    with pytest.raises(ValueError, match="read-only"):
        two.groups[0] = 1


def test_groups_go_from_the_first_ops_to_the_last() -> None:
    grouped = group(chain(60), "uniform:6", {})
    assert grouped.groups.tolist() == sorted(grouped.groups.tolist())
    assert grouped.edges.tolist() == [[number, number + 1] for number in range(5)]
    assert undirected(np.array([[3, 1], [1, 3], [2, 2]]), 4).tolist() == [[1, 3]]


def test_a_very_long_graph_is_cut_and_not_poured() -> None:
    grouped = group(chain(10_000), "uniform:4", {})
    assert grouped.groups.tolist() == sorted(grouped.groups.tolist())
    assert grouped.features[:, 2].tolist() == pytest.approx([2500] * 4, abs=2)


def test_the_seed_decides(checkout: Path) -> None:
    graph = read_graph(checkout / "tests/data/graphs/loop.pb")
    found = {tuple(group(graph, "uniform:9", {}, seed).groups.tolist()) for seed in (1, 2, 3, 1, 2, 3)}
    assert len(found) == 3


def test_the_processs_random_numbers_are_left_alone() -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)
    group(chain(50), "uniform:5", {})
    assert random.random() == expected


DIGEST = """
import hashlib, sys
from pathlib import Path
from driple.pipeline.graph.public import read_graph, recipe_of
digest = hashlib.sha256()
for name in ("tiny.parquet", "loop.pb", "calls.pb"):
    graph = read_graph(Path(sys.argv[1]) / name)
    for policy in ("none", "uniform:12", "proportional", "sqrt", "linear:4"):
        grouped = recipe_of([graph], policy, seed=3).group(graph)
        for array in (grouped.features, grouped.edges, grouped.groups):
            digest.update(array.tobytes())
print(digest.hexdigest())
"""


def test_every_process_finds_the_same(checkout: Path) -> None:
    outputs = set()
    for seed in ("1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", DIGEST, str(checkout / "tests/data/graphs")]
        outputs.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(outputs) == 1


@settings(max_examples=20)
@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=150))
def test_a_graph_alone_gets_the_number_of_groups_that_it_had_in_its_dataset(sizes: list[int]) -> None:
    batches = size_batches(sizes)
    waiting = sorted(sizes)
    begin = 0
    for largest, count in zip(batches.largest, batches.groups, strict=True):
        batch = [size for size in waiting if begin < size <= largest]
        begin = largest
        assert count == max(1, int(np.floor(np.log10(np.mean(batch)) + 0.5)))
        assert all(batches.groups_of(size) == count for size in batch)
        assert len(batch) >= min(32, len(sizes)) or largest == waiting[-1]
    assert batches.groups_of(10**6) == batches.groups[-1]
    assert batches.groups_of(1) == batches.groups[0]


def test_a_recipe_travels_as_json_and_does_the_same_on_the_other_side() -> None:
    dataset = [chain(nodes) for nodes in (5, 40, 200, 400)]
    recipe = recipe_of(dataset, "proportional", seed=4)
    assert recipe.batches == SizeBatches((400,), (2,))
    back = from_plain(Recipe, to_plain(recipe))
    assert back == recipe
    for graph in dataset:
        assert np.array_equal(back.group(graph).groups, recipe.group(graph).groups)
        assert len(recipe.group(graph).features) == 2


def test_proportional_needs_its_dataset() -> None:
    with pytest.raises(BadInput, match="needs the batches of the dataset"):
        group(chain(5), "proportional", {})


@pytest.mark.parametrize(
    "policy", ["", "uniform", "uniform:", "uniform:0", "uniform:-1", "uniform:1.5", "uniform:٣", "sqrt:2", "louvain"]
)
def test_what_is_no_policy(policy: str) -> None:
    for use in (lambda: group(chain(5), policy, {}), lambda: recipe_of([chain(5)], policy)):
        with pytest.raises(BadInput, match="grouping"):
            use()


@pytest.mark.parametrize(
    ("ops", "sizes", "edges"), [(0, 0, [[0, 0]]), (2, 1, [[0, 1]]), (2, 2, [[0, 2]]), (2, 2, [[-1, 0]]), (2, 2, [[0]])]
)
def test_what_is_no_graph(ops: int, sizes: int, edges: list[list[int]]) -> None:
    with pytest.raises(BadInput):
        OpGraph(("Relu",) * ops, np.zeros(sizes), np.zeros(ops), np.asarray(edges, dtype=np.int64))


def test_frequencies_are_shares_of_all_ops() -> None:
    graph = built(["Conv2D", "Relu", "Relu", "Relu"], [(0, 1)])
    assert op_frequency([graph, chain(4)]) == {"Conv2D": 1 / 8, "Relu": 7 / 8}
    with pytest.raises(BadInput):
        op_frequency([])


def test_unknown_ops_take_a_relatives_frequency_or_none() -> None:
    table = {"Add": 0.5, "FusedBatchNorm": 0.1, "FusedBatchNormV2": 0.2, "ApplyAdam": 0.3}
    ops = ["Add", "AddV2", "FusedBatchNormV3", "ResourceApplyAdam", "ReadVariableOp"]
    graph = built(ops, [(position, position + 1) for position in range(4)])
    assert group(graph, "none", table).features[:, 0].tolist() == [0.5, 0.5, 0.2, 0.3, 0.0]
    assert unknown_ops(graph, table) == ["ReadVariableOp"]


def test_the_published_frequencies() -> None:
    table = published_frequency()
    assert len(table) == 159
    assert sum(table.values()) == pytest.approx(1)
    assert table["Const"] == 0.211574788


def test_levels_are_longest_ways_and_loops_are_gone_through_once() -> None:
    ops = ["Enter", "Merge", "Switch", "Tanh", "NextIteration", "Exit"]
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 1], [2, 5], [0, 5]])
    assert levels(ops, edges)[0].tolist() == [0, 1, 2, 3, 4, 3]
    assert levels(ops, edges)[1] is None
    found, stuck = levels(["Relu"] * 3, np.array([[0, 1], [1, 2], [2, 1]]))
    assert stuck == 1
    assert found.tolist() == [0, 1, 2]
