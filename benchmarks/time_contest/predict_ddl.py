"""PredictDDL's recipe (Assogba et al., IEEE CLUSTER 2023): a graph embedding and features of the cluster, regressed.

    log step = regression([mean node state of a pre-trained encoder, batch size, update mode, cluster])

PredictDDL takes embeddings from a Graph HyperNetwork that was trained on architectures of one dataset type, and trains
a regression once for all workloads. Its code is not public, and neither are weights that fit these graphs. So the
encoder (graph_encoder.py) is trained here without labels, on the graphs of the zoo and on generated architectures
(pretraining.py). The graphs of tested families are among those of the zoo: an advantage that no other contestant has.
The regressions are ridge, support vectors, and a network of dense layers. With `totals` they also have the four totals
of the graph.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Graph
from driple.pipeline.graph.public import OpGraph
from time_contest.contestant import Learn, Predict, Rows
from time_contest.encoder_graphs import encoder_graph
from time_contest.features import Table, cluster_table, total_features
from time_contest.support_vectors import regressed

if TYPE_CHECKING:
    from time_contest.graph_encoder import GraphEncoder

EMBEDDED: WeakKeyDictionary[Graph, FloatArray] = WeakKeyDictionary()


def embedding_table(rows: Rows, folder: Path) -> FloatArray:
    """[n, HIDDEN]: the embedding of each row's graph, by the encoder that is kept in a folder."""
    from time_contest.graph_encoder import embeddings

    missing = {id(row.example.graph): row.example.graph for row in rows if row.example.graph not in EMBEDDED}
    graphs = [graph for graph in missing.values() if isinstance(graph, OpGraph)]
    for graph, found in zip(graphs, embeddings(_encoder(folder), [encoder_graph(one) for one in graphs]), strict=True):
        EMBEDDED[graph] = found
    return np.stack([EMBEDDED[row.example.graph] for row in rows])


def features(train: Rows, folder: Path) -> Table:
    """The embedding, options and cluster."""
    cluster = cluster_table(train)

    def table(rows: Rows) -> FloatArray:
        options = [
            [np.log(row.example.workload["batch_size"]), float(row.example.workload["update"] == "async")]
            for row in rows
        ]
        return np.concatenate([embedding_table(rows, folder), np.array(options).reshape(-1, 2), cluster(rows)], axis=1)

    return table


def features_and_totals(train: Rows, folder: Path) -> Table:
    """The embedding beside the totals of the graph, options and cluster."""
    totals = total_features(train)
    return lambda rows: np.concatenate([embedding_table(rows, folder), totals(rows)], axis=1)


def learn(train: Rows, seed: int, folder: Path, how: str, totals: bool) -> Predict:
    """A regression on embeddings."""
    table = features_and_totals(train, folder) if totals else features(train, folder)
    return regressed(table, train, how, seed)


def learner(folder: Path, how: str, *, totals: bool = False) -> Learn:
    """The recipe with one of the regressions of support_vectors.py; the encoder is kept in a folder."""
    return partial(learn, folder=folder, how=how, totals=totals)


@lru_cache(maxsize=1)
def _encoder(folder: Path) -> GraphEncoder:
    from time_contest.pretraining import kept_encoder

    return kept_encoder(folder, lambda text: print(text, file=sys.stderr, flush=True))
