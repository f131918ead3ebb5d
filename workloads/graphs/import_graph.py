"""Graphs of models that Driple does not build: a function that returns a torch module, an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import BadInput, UnknownName, shown
from driple.contracts.graph_makers import GRAPH_MAKERS, ONNX, TORCH
from driple.contracts.setting import Setting
from driple.contracts.strategy import default_strategy
from driple.contracts.zoo import DATASETS, IMAGE, MAX_BATCH, SEQUENCE, ordinary_size
from driple.workloads.graphs import graph_writer
from driple.workloads.graphs.graph_writer import Graph
from driple.workloads.graphs.step_builder import StepKind

DEFAULT_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the model itself does not say."""

    setting: Setting
    batch_size: int | None
    optimiser: str
    sharding: str
    dataset: str | None = None
    size: int | None = None
    width: float = 1.0

    @property
    def kind(self) -> StepKind:
        return StepKind(self.setting, default_strategy(self.setting.servers), self.optimiser, self.sharding)

    @property
    def sizes(self) -> dict[str, int | float]:
        """What a function that builds a model may ask for."""
        found: dict[str, int | float] = {"batch_size": self.batch_size or DEFAULT_BATCH, "width": self.width}
        if self.dataset is not None:
            reads = DATASETS[self.dataset]
            size = self.size or ordinary_size(None, reads)
            name = {IMAGE: "image_size", SEQUENCE: "sequence_length"}.get(reads.kind)
            found |= {"classes": reads.classes, **({name: size} if name and size else {})}
        return found

    def check(self) -> None:
        """Raises BadInput for values out of range."""
        if self.batch_size is not None and not 1 <= self.batch_size <= MAX_BATCH:
            raise BadInput(f"batch_size: expected 1 to {MAX_BATCH}, got {self.batch_size}")
        if self.dataset is not None and self.dataset not in DATASETS:
            raise UnknownName("dataset", self.dataset, tuple(DATASETS))


def import_torch(function: str, options: ImportOptions, out: Path) -> int:
    """Writes the graph of the module that `file.py:function` returns, and prints a line. Raises BadInput."""
    path, _, name = function.rpartition(":")
    if not path or not name.isidentifier():
        raise BadInput(f"--torch {shown(function)}: expected file.py:function")
    options.check()
    _need(TORCH)
    from driple.workloads.torch_graphs.torch_own_graph import of_function

    return _write(of_function(Path(path), name, options.kind, options.sizes), out, function)


def import_onnx(path: Path, options: ImportOptions, out: Path) -> int:
    """Writes the training graph that follows from an ONNX file, and prints a line. Raises BadInput."""
    options.check()
    _need(ONNX)
    from driple.workloads.onnx_graphs.onnx_graph import of_file

    return _write(of_file(path, options.kind, options.batch_size, options.size), out, str(path))


def _write(graph: Graph, out: Path, source: str) -> int:
    try:
        graph_writer.write(graph, out)
    except ArithmeticError:
        raise BadInput(f"{source}: bytes or FLOPs of an op do not fit 64 bits; use a smaller batch or size") from None
    print(f"{out}: {len(graph.nodes)} nodes, {len(graph.edges)} edges")
    return 0


def _need(maker: str) -> None:
    from importlib.util import find_spec

    needed = GRAPH_MAKERS[maker]
    if any(find_spec(module) is None for module in needed.modules):
        raise BadInput(f"{needed.title} is not installed: pip install 'driple[{needed.extra}]'")
