"""Training graphs of ONNX files, written by PyTorch's own exporters; and files that are none."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, IMAGE, MODELS
from driple.pipeline.graph.public import CLASSES, TrainingStep, class_numbers, class_of, read_graph, read_step
from driple.workloads.graphs import graph_writer
from driple.workloads.graphs.graph_writer import Graph
from driple.workloads.graphs.step_builder import StepKind
from driple.workloads.runtime.job import job_without_hosts
from driple.workloads.torch_graphs import torch_zoo_graph
from driple.workloads.torch_models import torch_zoo

onnx = pytest.importorskip("onnx")
RING = StepKind(Setting.parse("cpu-p0w2-1g"), "allreduce")
SIZES = {"resnet20": 32, "mobilenetv2": 64, "transformer": 8, "lenet": 28}
BATCH = 8


def workload(model: str) -> Workload:
    of = DATASETS[MODELS[model].datasets[0]]
    sizes: dict[str, Any] = {"image_size" if of.kind == IMAGE else "sequence_length": SIZES[model]}
    more: dict[str, Any] = {"strategy": "allreduce", "framework": "torch", "backend": "gloo", "width": 0.25}
    return Workload(model, of.name, BATCH, **sizes, **more)


class Plain(nn.Module):  # type: ignore[misc]
    """A model of the zoo with tensors as arguments, as exporters want them."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.inner = torch_zoo.network(workload(model))

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        names = ("image",) if len(tensors) == 1 else ("source", "target")
        logits: torch.Tensor = self.inner(dict(zip(names, tensors, strict=True)))
        return logits


def inputs(model: str, batch: int) -> tuple[torch.Tensor, ...]:
    size = SIZES[model]
    if DATASETS[MODELS[model].datasets[0]].kind == IMAGE:
        return (torch.zeros(batch, 3, size, size),)
    return torch.ones(batch, size, dtype=torch.int64), torch.ones(batch, size + 1, dtype=torch.int64)


def export(module: nn.Module, given: tuple[torch.Tensor, ...], path: Path, *, training: bool, dynamic: bool) -> Path:
    """By the exporter over TorchScript, which can keep a model in training mode."""
    names = [f"input_{number}" for number in range(len(given))]
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(training),
            given,
            str(path),
            dynamo=False,
            training=mode,
            do_constant_folding=not training,
            input_names=names,
            dynamic_axes={name: {0: "batch"} for name in names} if dynamic else None,
            verbose=False,
        )
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that exports a model of the zoo in training mode, each once."""
    folder = tmp_path_factory.mktemp("onnx")
    made: dict[str, Path] = {}

    def get(model: str) -> Path:
        if model not in made:
            torch.manual_seed(1)
            path = folder / f"{model}.onnx"
            made[model] = export(Plain(model), inputs(model, 2), path, training=True, dynamic=True)
        return made[model]

    return get


def of_file(path: Path, kind: StepKind = RING, batch_size: int | None = BATCH, size: int | None = None) -> Graph:
    from driple.workloads.onnx_graphs.onnx_graph import of_file as convert

    return convert(path, kind, batch_size, size)


def step_of(graph: Graph, folder: Path) -> TrainingStep:
    graph_writer.write(graph, folder / "g.parquet")
    return read_step(folder / "g.parquet")


def flops_by_class(step: TrainingStep) -> dict[str, float]:
    return dict(zip(CLASSES, np.bincount(class_numbers(step.ops), step.flops, minlength=len(CLASSES)), strict=True))


@pytest.mark.parametrize("model", SIZES)
def test_work_and_traffic_are_those_of_the_model_that_was_exported(model: str, exported: Any, tmp_path: Path) -> None:
    graph = of_file(exported(model))
    job = job_without_hosts(Setting.parse("cpu-p0w2-1g"), workload(model))
    found, expected = (step_of(one, tmp_path) for one in (graph, torch_zoo_graph.of_job(job, "worker:0")))
    assert found.unsized == 0
    assert sum(one.bytes for one in found.reduced) == sum(one.bytes for one in expected.reduced)
    assert len(found.reduced) == len(expected.reduced)
    ours, theirs = flops_by_class(found), flops_by_class(expected)
    for name in ("convolution", "convolution_gradient", "depthwise", "matmul"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-6), name
    assert found.flops.sum() == pytest.approx(expected.flops.sum(), rel=0.01)
    windows = [Counter(tuple(row) for row in one.windows.tolist() if any(row)) for one in (found, expected)]
    assert windows[0] == windows[1]
    assert (graph.framework, graph.framework_version, graph.tensorflow) == ("onnx", onnx.__version__, None)


def test_moving_averages_travel_to_servers_and_are_not_reduced(exported: Any, tmp_path: Path) -> None:
    with torch.device("meta"):
        model = torch_zoo.network(workload("resnet20"))
    weights = 4 * sum(one.numel() for one in model.parameters())
    averages = 4 * sum(one.numel() for one in model.buffers() if one.is_floating_point())
    graph_writer.write(of_file(exported("resnet20")), tmp_path / "g.parquet")
    assert read_graph(tmp_path / "g.parquet").bytes_sent == weights
    servers = StepKind(Setting.parse("v100-p2w2-1g"), "ps", "adam")
    graph = of_file(exported("resnet20"), servers)
    assert {node.op for node in graph.nodes} >= {"ApplyAdam", "AssignSub"}
    step = step_of(graph, tmp_path)
    assert step.pulled_bytes == step.pushed_bytes == weights + averages
    assert {one.server for one in step.pulls} == {0, 1}


def test_the_exporter_over_torch_export_gives_the_same_work(tmp_path: Path, exported: Any) -> None:
    """It folds what it can: here biases, which are zero, so they are missing."""
    pytest.importorskip("onnxscript")
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = (({0: torch.export.Dim.DYNAMIC},),)
        path, model = tmp_path / "l.onnx", Plain("lenet").train()
        torch.onnx.export(model, inputs("lenet", 2), str(path), dynamo=True, dynamic_shapes=shapes, verbose=False)
    found, other = (step_of(of_file(one), tmp_path) for one in (path, exported("lenet")))
    assert (found.unsized, len(found.reduced), len(other.reduced)) == (0, 4, 8)
    for name in ("convolution", "convolution_gradient", "matmul"):
        assert flops_by_class(found)[name] == pytest.approx(flops_by_class(other)[name], rel=1e-6)


class Odd(nn.Module):  # type: ignore[misc]
    """Layers with their own rules, and one weight that two of them use."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.line = nn.Conv1d(12, 6, 3)
        self.grow = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.grouped = nn.Conv2d(4, 8, 3, groups=2)
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.out = nn.Linear(8, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        rows = self.lstm(self.embedding(words))[0].transpose(1, 2)
        image = self.grouped(self.grow(self.line(rows).unsqueeze(2))[:, :, :, :].repeat(1, 1, 2, 1)) * self.scale
        scaled: torch.Tensor = self.out(torch.sigmoid(image * self.scale).mean((2, 3)))
        return scaled


def test_layers_by_hand(tmp_path: Path) -> None:
    torch.manual_seed(1)
    path = export(Odd(), (torch.zeros(5, 10, dtype=torch.int64),), tmp_path / "o.onnx", training=True, dynamic=False)
    graph = of_file(path, batch_size=None)
    nodes: dict[str, list[Any]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.op, []).append(node)
    lstm = 2 * 5 * 10 * (4 * 12 * 8 + 4 * 12 * 12)
    assert [node.flops for node in nodes["CudnnRNNV3"]] == [lstm]
    assert [node.flops for node in nodes["CudnnRNNBackpropV3"]] == [2 * lstm]
    line, grow, grouped = 2 * 5 * 8 * 6 * 12 * 3, 2 * 5 * 8 * 6 * 4 * 2 * 2, 2 * 5 * 2 * 14 * 8 * 2 * 3 * 3
    assert [node.flops for node in nodes["Conv2D"]] == [line, grouped, grow]  # the gradient of a transposed one
    assert Counter(node.flops for node in nodes["Conv2DBackpropInput"]) == Counter([grow, grouped, line])
    assert Counter(node.flops for node in nodes["Conv2DBackpropFilter"]) == Counter([line, grow, grouped])
    sizes = sorted(math.prod(node.shapes[0]) for node in nodes["CollectiveReduceV2"])
    assert sizes == sorted(one.numel() for one in Odd().parameters())
    assert len(nodes["UnsortedSegmentSum"]) == 1  # of the embedding
    # Two uses of one weight: the parts of its gradient are added.
    assert [node.shapes for node in nodes["AddN"] if node.shapes[0] == [8, 1, 1]] == [[[8, 1, 1]]]


def test_a_batch_size_is_that_of_the_file_or_that_which_was_asked_for(exported: Any, tmp_path: Path) -> None:
    fixed = export(Plain("lenet"), inputs("lenet", 3), tmp_path / "f.onnx", training=True, dynamic=False)
    with pytest.raises(BadInput, match="f.onnx: its batch size is 3, not 8: leave the batch size out, or export it"):
        of_file(fixed)
    sizes = {}
    for path, asked in ((fixed, None), (fixed, 3), (exported("lenet"), None), (exported("lenet"), 64)):
        graph = of_file(path, batch_size=asked)
        (image,) = [node for node in graph.nodes if node.op == "Placeholder" and node.dtypes == ["float32"]]
        (shape,) = image.shapes
        assert shape is not None
        sizes[path.name, asked] = shape
        graph_writer.write(graph, tmp_path / "g.parquet")
        assert read_graph(tmp_path / "g.parquet").batch_size == shape[0]
    assert sizes == {
        ("f.onnx", None): [3, 28, 28, 3],
        ("f.onnx", 3): [3, 28, 28, 3],
        ("lenet.onnx", None): [32, 28, 28, 3],
        ("lenet.onnx", 64): [64, 28, 28, 3],
    }


def helper_model(nodes: list[Any], shape: list[Any], *, functions: list[Any] | None = None, domain: str = "") -> Any:
    make = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [weight],
    )
    opsets = [make.make_opsetid("", 18), *([make.make_opsetid(domain, 1)] if domain else [])]
    return make.make_model(graph, opset_imports=opsets, functions=functions or [])


def test_other_open_dimensions_and_ops_of_nobody(tmp_path: Path) -> None:
    make = onnx.helper.make_node
    nodes = [make("MatMul", ["x", "w"], ["a"]), make("Magic", ["a"], ["b"], domain="own"), make("Tanh", ["b"], ["y"])]
    onnx.save(helper_model(nodes, ["n", "length", 4], domain="own"), tmp_path / "m.onnx")
    step = step_of(of_file(tmp_path / "m.onnx", size=7), tmp_path)
    assert flops_by_class(step)["matmul"] == 2 * (2 * BATCH * 7 * 4 * 4)  # forward and of the weight
    assert {"Magic", "MagicGrad", "TanhGrad"} <= set(step.ops) and class_of("Magic") == "other"
    assert step.unsized > 0  # the shapes after an op that onnx does not know
    assert step_of(of_file(tmp_path / "m.onnx"), tmp_path).unsized > step.unsized


def test_functions_of_a_file_are_part_of_its_graph(tmp_path: Path) -> None:
    make = onnx.helper
    body = [make.make_node("MatMul", ["p", "q"], ["t"]), make.make_node("Relu", ["t"], ["r"])]
    function = make.make_function("own", "Dense", ["p", "q"], ["r"], body, [make.make_opsetid("", 18)])
    nodes = [make.make_node("Dense", ["x", "w"], ["y"], domain="own")]
    onnx.save(helper_model(nodes, [2, 4], functions=[function], domain="own"), tmp_path / "f.onnx")
    ops = Counter(node.op for node in of_file(tmp_path / "f.onnx", batch_size=None).nodes)
    assert (ops["MatMul"], ops["ReluGrad"], ops["Dense"]) == (2, 1, 0)


def _truncated(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_truncated, "not an ONNX file, or cut short"),
        (lambda content: b"", "not an ONNX file, or one without ops"),
        (lambda content: b"\x89PNG\r\n" + content[:500], "not an ONNX file"),
        (lambda content: b"PAR1" + content, "not an ONNX file"),
        (lambda content: bytes(range(256)) * 40, "not an ONNX file"),
    ],
)
def test_other_files_are_refused(change: Any, words: str, exported: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(change(exported("lenet").read_bytes()))
    with pytest.raises(BadInput, match=words) as caught:
        of_file(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_any_prefix_is_refused(exported: Any, tmp_path: Path) -> None:
    content = exported("lenet").read_bytes()
    for length in (1, 2, 7, 40, 200, 1000, len(content) // 2, len(content) - 1):
        (tmp_path / "p.onnx").write_bytes(content[:length])
        with pytest.raises(BadInput, match="not an ONNX file"):
            of_file(tmp_path / "p.onnx")


def test_graphs_that_make_no_sense_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, path = onnx.helper.make_node, tmp_path / "m.onnx"
    for nodes, words in (
        ([make("Tanh", ["z"], ["y"])], "takes 'z', which nothing before it makes"),
        ([make("Relu", ["a"], ["y"]), make("Tanh", ["x"], ["a"])], "takes 'a', which nothing before it makes"),
        ([make("Conv", ["x"], ["y"])], "not a valid ONNX graph"),
        ([make("Tanh", ["x"], [])], "has no output"),
        ([make("Tanh", ["x"], ["y"])], "no output depends on weights that can be trained"),
    ):
        onnx.save(helper_model(nodes, [2, 4]), path)
        with pytest.raises(BadInput, match=words):
            of_file(path, batch_size=None)
    with pytest.raises(BadInput, match="No such file"):
        of_file(tmp_path / "none.onnx")
    with pytest.raises(BadInput, match="not a regular file"):
        of_file(tmp_path)
    monkeypatch.setattr("driple.workloads.onnx_graphs.onnx_file.MOST_BYTES", path.stat().st_size)
    with pytest.raises(BadInput, match="bytes, and an ONNX file has less than"):
        of_file(path)
    monkeypatch.undo()
    monkeypatch.setattr("driple.workloads.onnx_graphs.onnx_file.MOST_NODES", 0)
    with pytest.raises(BadInput, match="1 ops; expected at most 0"):
        of_file(path)


def test_the_table_of_ops_has_ops_of_onnx_and_known_types() -> None:
    from driple.workloads.onnx_graphs import onnx_ops

    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    contributed = {"SimplifiedLayerNormalization", "SkipLayerNormalization"}
    assert set(onnx_ops.RULES) - known == contributed
    types = {op for rule in onnx_ops.RULES.values() for op in rule} - {onnx_ops.SAME}
    assert {op for op in types if class_of(op) == "other"} == set()
