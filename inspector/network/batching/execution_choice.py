"""The execution: the faster one for graphs of these sizes, or the one that was asked for.

Dense products cost the square of the largest graph, padding included; DGL costs time per edge and per call. Measured
(32 graphs, about 5 neighbours a node, preset `driple`, forward and backward, 1 thread, ms dense/DGL): all of one size,
20 nodes: 6/15, 100: 24/31, 200: 90/90, 500: 274/147; sizes from almost nothing up to 20: 17/15, 100: 47/28, 200: 61/26,
500: 344/92. Set2Set adds many small steps, where DGL is the slower one up to 150 nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from driple.inspector.model.model_config import EXECUTIONS, one_of
from driple.inspector.network.batching.dense import dense
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.batching.sparse import has_dgl, sparse

Batcher = Callable[[Sequence[Tensor], Sequence[Tensor]], Graphs]

_ALWAYS_DENSE = 32
"""Nodes of the largest graph up to which both are about equal, whatever the sizes."""
_DENSE_IF_EQUAL = 200
"""Nodes up to which dense is faster if all graphs have the same size."""


def choose(execution: str, sizes: Sequence[int]) -> Batcher:
    """The function that makes batches of graphs of these sizes. `auto` is dense where DGL is not installed."""
    one_of("execution", execution, EXECUTIONS)
    if execution == "auto":
        return dense if suits_dense(sizes) or not has_dgl() else sparse
    return sparse if execution == "dgl" else dense


def suits_dense(sizes: Sequence[int]) -> bool:
    """Whether dense is the faster execution of graphs with so many nodes."""
    largest = max(sizes, default=0)
    filled = sum(sizes) / (largest * len(sizes)) if largest else 1.0
    return largest <= max(_ALWAYS_DENSE, _DENSE_IF_EQUAL * filled**2)
