"""Graph functions for other packages: from a file to ops, from ops to groups (docs/concepts/graphs.md).

graphs = [read_graph(path) for path in paths]
recipe = recipe_of(graphs, "uniform:100")          # stored with the dataset and with the inspector
features = recipe.group(graphs[0]).features        # a single graph gets the same features
"""

from __future__ import annotations

from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.op_flops import flops as op_flops
from driple.pipeline.graph.group_count import SizeBatches, size_batches
from driple.pipeline.graph.grouping import Recipe, forget_wirings, group, recipe_of
from driple.pipeline.graph.op_classes import CLASSES, COUNTED, class_numbers, class_of
from driple.pipeline.graph.op_frequencies import op_frequency, unknown_ops
from driple.pipeline.graph.op_graph import FEATURES, Grouped, OpGraph, undirected
from driple.pipeline.graph.published_frequencies import published_frequency
from driple.pipeline.graph.raw_graph import RawGraph, choose
from driple.pipeline.graph.step_file import StepKey, read_steps, step_key, write_steps
from driple.pipeline.graph.stored_graph import stored_graph, stored_step
from driple.pipeline.graph.stored_graph_file import write_stored_graph
from driple.pipeline.graph.training_step import WINDOW, TrainingStep, Transfer, training_step, window_of

__all__ = ["FEATURES", "Grouped", "OpGraph", "Recipe", "SizeBatches", "forget_wirings", "group", "op_frequency"]
__all__ += ["published_frequency", "read_graph", "recipe_of", "size_batches", "stored_graph", "undirected"]
__all__ += ["CLASSES", "COUNTED", "TrainingStep", "Transfer", "WINDOW", "class_numbers", "class_of", "read_step"]
__all__ += ["StepKey", "read_steps", "step_key", "write_steps"]
__all__ += ["op_flops", "stored_step", "unknown_ops", "window_of", "write_stored_graph"]


def read_graph(path: Path, *, device: str | None = None, batch_size: int | None = None) -> OpGraph:
    """The graph of a worker: the largest component of the ops of its device and the data edges between them.

    Args:
        path: a graph of a run directory (.parquet), or a GraphDef (.pb, .pbtxt).
        device: instead of the worker's: a device name or parts of it, `worker:1`, `ps:0`, `GPU`.
        batch_size: value of an unknown first dimension; by default that of the file's workload, else 1.

    Raises:
        BadInput: the file cannot be read, is not a graph, or has no such ops; one line that begins with the path.
    """
    try:
        return choose(_read(path, batch_size), device)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def read_step(path: Path, *, loop_length: int = 1, batch_size: int | None = None) -> TrainingStep:
    """The training step of the worker of a graph file, for the simulator. Raises BadInput like `read_graph`."""
    try:
        return training_step(_read(path, batch_size), loop_length)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _read(path: Path, batch_size: int | None) -> RawGraph:
    content = path.read_bytes() if path.is_file() else None
    if content is None:
        raise BadInput("a folder, not a graph" if path.is_dir() else "no such file")
    if content[:4] == b"PAR1":
        from driple.pipeline.graph import graph_parquet

        return graph_parquet.read(content, batch_size)
    from driple.pipeline.graph import graphdef

    return graphdef.read(content, text=path.suffix in (".pbtxt", ".txt"), batch_size=batch_size)
