"""Generated architectures, and the encoder that learns from them without labels."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from time_contest.encoder_graphs import FEATURES, encoder_graph, two_views, zoo_graphs
from time_contest.generated_graphs import BODIES, generated_graph, generated_graphs
from time_contest.graph_encoder import HIDDEN, GraphEncoder, batch_of, embeddings
from time_contest.graph_writer import GraphWriter
from time_contest.pretraining import kept_encoder, pretrained

from driple.pipeline.graph.public import class_of


@pytest.mark.parametrize("body", BODIES)
def test_every_kind_of_body_is_a_legal_training_graph(body: str) -> None:
    for seed in range(5):
        writer = GraphWriter(4)
        graph = writer.finish(writer.dense(BODIES[body](writer, np.random.default_rng(seed)), 10))
        count = Counter(graph.ops)
        assert count["Conv2D"] == count["Conv2DBackpropInput"] == count["Conv2DBackpropFilter"]
        assert count["FusedBatchNormV3"] == count["FusedBatchNormGradV3"]
        assert count["BiasAdd"] == count["BiasAddGrad"] >= 1
        assert (graph.edges[:, 0] < graph.edges[:, 1]).all()  # written in the order of execution
        assert (graph.bytes > 0).all() and not (graph.flops < 0).any()
        assert {class_of(op) for op in count} - {"other"} and "other" not in {class_of(op) for op in count}


def test_a_dense_layer_by_hand() -> None:
    writer = GraphWriter(2)
    x = writer.source(2, 3)
    graph = writer.finish(writer.dense(x, 5))
    sizes = {op: graph.bytes[number] for number, op in enumerate(graph.ops)}
    flops = [graph.flops[number] for number, op in enumerate(graph.ops) if op == "MatMul"]
    assert flops == [2 * 2 * 5 * 3] * 3  # forward, and the gradients of both operands
    assert sizes["BiasAdd"] == 4 * 2 * 5 and sizes["BiasAddGrad"] == 4 * 5


def test_a_sum_of_unequal_shapes_is_refused() -> None:
    writer = GraphWriter(2)
    with pytest.raises(ValueError, match="AddV2"):
        writer.add(writer.source(2, 3), writer.source(2, 4))
    with pytest.raises(ValueError, match="MatMul"):
        writer.matmul(writer.source(2, 3), writer.source(4, 2))


def test_gradients_of_a_tensor_that_is_taken_twice_are_added() -> None:
    writer = GraphWriter(2)
    x = writer.dense(writer.source(2, 3), 3)
    graph = writer.finish(writer.add(x, writer.elementwise("Relu", x, "ReluGrad")))
    assert Counter(graph.ops)["AddN"] == 1


def test_the_same_seed_generates_the_same_graph() -> None:
    first, again = (list(generated_graphs(6, seed=3)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert one.ops == other.ops and (one.bytes == other.bytes).all() and (one.edges == other.edges).all()
    assert len({graph.ops for graph in generated_graphs(20)}) > 15


def test_groups_have_everything_that_ops_have() -> None:
    graph = generated_graph(5)
    found = encoder_graph(graph)
    assert found.features.shape[1] == FEATURES
    assert np.expm1(found.features[:, : FEATURES // 3]).sum() == pytest.approx(len(graph.ops))
    assert found.distances.max() <= 50 and (np.diag(found.distances) == 0).all()


def test_the_zoo_gives_graphs_without_tensorflow() -> None:
    first, second, third = islice(zoo_graphs(), 3)  # a model with three batch sizes
    assert [one.batch_size for one in (first, second, third)] == [4, 16, 64]
    assert first.ops == second.ops and first.bytes.sum() < second.bytes.sum() < third.bytes.sum()


def test_embeddings_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    encoder = GraphEncoder()
    graphs = [encoder_graph(graph) for graph in generated_graphs(5)]
    together = embeddings(encoder, graphs)
    alone = np.concatenate([embeddings(encoder, [graph]) for graph in graphs])
    assert together.shape == (5, HIDDEN)
    assert together == pytest.approx(alone, abs=1e-5)
    assert batch_of(graphs).real.sum() == sum(len(graph.features) for graph in graphs)


def test_training_without_labels_lowers_the_loss() -> None:
    views = list(two_views(generated_graphs(24)))
    said: list[str] = []
    pretrained(views, epochs=8, say=said.append)
    losses = [float(line.partition("loss ")[2].partition(",")[0]) for line in said]
    assert len(losses) == 8 and losses[-1] < losses[0]


def test_a_kept_encoder_is_the_trained_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time_contest.pretraining.graphs_of_the_zoo", lambda: iter(()))
    said: list[str] = []
    first, again = (kept_encoder(tmp_path, said.append, generated=8, epochs=1) for _ in range(2))
    graphs = [encoder_graph(generated_graph(1))]
    assert embeddings(first, graphs) == pytest.approx(embeddings(again, graphs))
    assert sum("epoch" in line for line in said) == 1
