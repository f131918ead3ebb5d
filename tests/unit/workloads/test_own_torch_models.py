"""Users' own torch models: recorded layer by layer, for any batch size, and refused in one line where that fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import read_graph
from driple.workloads.graphs import graph_writer
from driple.workloads.graphs.graph_writer import Graph, Node
from driple.workloads.graphs.import_graph import ImportOptions, import_torch
from driple.workloads.graphs.step_builder import StepKind
from driple.workloads.runtime.job import job_without_hosts, workload_of
from driple.workloads.torch_graphs import torch_own_graph, torch_zoo_graph

RING = StepKind(Setting.parse("cpu-p0w2-1g"), "allreduce")
SIZES = {"batch_size": 8, "width": 1.0}
CODE = """
import torch
from torch import nn

class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.grouped = nn.Conv1d(8, 16, 3), nn.Conv2d(8, 16, 3, groups=4)
        self.grow, self.deep = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 16, 3, groups=8)
        self.solid, self.norm = nn.Conv3d(1, 4, 3), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.unused = nn.Linear(3, 3)

    def forward(self, rows, image):
        x = self.norm(self.line(rows).transpose(1, 2))
        x, _ = self.attention(x, x, x)
        y = self.deep(self.grow(self.grouped(image)))
        return x.sum() + y.sum() + self.solid(y.unsqueeze(1)).mean()

def layers(*, batch_size):
    return Layers(), {"rows": torch.zeros(batch_size, 8, 32), "image": torch.zeros(batch_size, 8, 16, 16)}

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm, self.out = nn.Embedding(50, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 50)
    def forward(self, words):
        return self.out(self.lstm(self.table(words))[0])

def recurrent():
    return Recurrent(), torch.zeros(2, 5, dtype=torch.int64)

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 7)
        self.body.requires_grad_(False)
    def forward(self, x):
        for _ in range(2 if x.shape[0] > 4 else 1):
            y = self.norm(self.body(x))
        return {"logits": self.head(y.mean((2, 3))), "hidden": y}

def adapted():
    return Adapted(), torch.zeros(1, 3, 9, 9)

def zoo(*, batch_size, image_size, classes, width):
    from driple.workloads.torch_models.torch_layers import Sizes
    from driple.workloads.torch_models.torch_resnet import cifar
    images = torch.zeros(batch_size, 3, image_size, image_size)
    return cifar(Sizes(image_size, classes, width), depth=20), ({"image": images},)

class Item(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y if y.sum().item() > 0 else -y

def item(): return Item(2, 2), torch.zeros(2, 2)
def wrong(): return 3
def needs(*, image_size): return 3
def positional(batch_size, /): return 3
def boom():
    raise ValueError("no way")
def frozen(): return nn.Linear(2, 2).requires_grad_(False), torch.zeros(2, 2)
def nothing(): return nn.Linear(2, 2), None
def mixed(): return nn.Bilinear(2, 2, 2), (torch.zeros(3, 2), torch.zeros(4, 2))
def shapes(): return nn.Linear(3, 2), torch.zeros(2, 5)
class Numbers(nn.Linear):
    def forward(self, x): return [1, 2]
def numbers(): return Numbers(2, 2), torch.zeros(2, 2)
class Apart(nn.Linear):
    def forward(self, x): return x * 2
def apart(): return Apart(2, 2), torch.zeros(2, 2)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


def build(code: Path, function: str, kind: StepKind = RING, **sizes: int) -> Graph:
    return torch_own_graph.of_function(code, function, kind, {**SIZES, **sizes})


def by_op(graph: Graph) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        found.setdefault(node.op, []).append(node)
    return found


def test_layers_by_hand(code: Path, tmp_path: Path) -> None:
    graph = build(code, "layers")
    nodes = by_op(graph)
    line, grouped = 2 * 8 * 30 * 16 * 8 * 3, 2 * 8 * 14 * 14 * 16 * 2 * 9
    grow, deep, solid = 2 * 8 * 14 * 14 * 16 * 8 * 4, 2 * 8 * 26 * 26 * 16 * 9, 2 * 8 * 14 * 24 * 24 * 4 * 27
    assert [node.flops for node in nodes["Conv2D"]] == [line, grouped, grow]  # the gradient of a transposed one
    assert [node.flops for node in nodes["Conv2DBackpropInput"]] == [grow]  # forward; inputs need no gradient
    assert Counter(node.flops for node in nodes["Conv2DBackpropFilter"]) == Counter([line, grouped, grow])
    for name in ("", "BackpropInput", "BackpropFilter"):
        assert [node.flops for node in nodes[f"DepthwiseConv2dNative{name}"]] == [deep]
    for name in ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"):
        assert [node.flops for node in nodes[name]] == [solid]
    shapes = {node.name: node.shapes for node in nodes["VariableV2"]}
    assert shapes["line.weight"] == [[1, 3, 8, 16]] and shapes["grouped.weight"] == [[3, 3, 2, 16]]
    assert shapes["deep.weight"] == [[3, 3, 8, 2]] and shapes["grow.weight"] == [[2, 2, 8, 16]]
    assert shapes["attention.in_proj_weight"] == [[48, 16]] and "unused.weight" not in shapes
    attention = [node.flops for node in nodes["BatchMatMulV2"]]
    assert attention == [2 * 8 * 4 * 30 * 30 * 4] * 6  # two products, four for their gradients
    graph_writer.write(graph, tmp_path / "g.parquet")
    weights = 4 * (3 * 8 * 16 + 9 * 2 * 16 + 4 * 8 * 16 + 9 * 16 + 27 * 4 + 3 * 16 * 16 + 16 * 16)
    biases = 4 * (16 + 16 + 8 + 16 + 4 + 48 + 16 + 2 * 16)
    assert read_graph(tmp_path / "g.parquet").bytes_sent == weights + biases


def test_a_recurrent_layer_runs_step_by_step(code: Path) -> None:
    nodes = by_op(build(code, "recurrent"))
    assert (len(nodes["Tanh"]), len(nodes["Sigmoid"])) == (2 * 5, 3 * 5)
    forward = 2 * 8 * 5 * (4 * 4 * 6 + 4 * 6 * 6 + 6 * 50)
    unused = 2 * 8 * 4 * 6 * 6  # the state before the first word is no weight's work
    total = sum(node.flops or 0 for node in nodes["MatMul"])
    assert 3 * forward - 2 * unused <= total <= 3 * forward


def test_frozen_weights_are_read_and_not_sent(code: Path, tmp_path: Path) -> None:
    for kind, sent, received in (
        (RING, 4 * (2 * 4 + 5 * 7), 4 * (2 * 4 + 5 * 7)),
        (StepKind(Setting.parse("v100-p1w2-1g"), "ps"), 4 * (2 * 4 + 2 * 8 + 5 * 7), 4 * (4 * 4 + 5 * 7 + 4 * 28)),
    ):  # servers also get the averages, which each of the two normalisations changes
        graph_writer.write(build(code, "adapted", kind), tmp_path / "g.parquet")
        graph = read_graph(tmp_path / "g.parquet")
        assert (graph.bytes_sent, graph.bytes_received, graph.batch_size) == (sent, received, 8)
        assert graph.ops.count("Conv2D") == 2  # the loop runs as it would with this batch


def test_a_model_of_the_zoo_gives_the_same_graph_as_a_function(code: Path) -> None:
    """One is recorded on the device meta, the other with fake tensors."""
    job = job_without_hosts(
        Setting.parse("cpu-p0w2-1g"), workload_of("resnet20", None, 8, strategy="allreduce", framework="torch")
    )
    zoo = torch_zoo_graph.of_job(job, "worker:0")
    own = build(code, "zoo", image_size=32, classes=10)
    shape = [(node.op, node.shapes, node.flops) for node in zoo.nodes if node.op != "Placeholder"]
    assert [(node.op, node.shapes, node.flops) for node in own.nodes if node.op != "Placeholder"] == shape


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("item", "DataDependentOutputException at line 55: .*must not depend on values of tensors"),
        ("wrong", "returned int, expected a torch.nn.Module and its example inputs"),
        ("needs", r"nothing to give for parameter 'image_size' \(on offer: batch_size, width; --dataset and --size"),
        ("positional", "nothing to give for parameter 'batch_size'"),
        ("boom", "ValueError at line 62: no way"),
        ("frozen", "the module has no parameters to train"),
        ("nothing", "its example inputs have no tensor"),
        ("mixed", "first dimensions of its example inputs differ.*give it a parameter batch_size"),
        ("shapes", "RuntimeError: "),
        ("numbers", "the module returned list, expected logits or a scalar loss"),
        ("apart", "returned a tensor that no parameter has a part in"),
        ("layer", r"unknown function 'layer'; did you mean 'layers'\?"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_a_line(code: Path, function: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        build(code, function)
    assert str(caught.value).startswith(str(code)) and "\n" not in str(caught.value)


def test_options_are_checked(code: Path, tmp_path: Path) -> None:
    options = ImportOptions(setting=RING.setting, batch_size=8, optimiser="adam", sharding="balanced")
    out = tmp_path / "g.parquet"
    with pytest.raises(BadInput, match="expected file.py:function"):
        import_torch("own.py", options, out)
    with pytest.raises(BadInput, match="cannot read the file"):
        import_torch("none.py:build", options, out)
    with pytest.raises(BadInput, match="batch_size: expected 1 to"):
        import_torch(f"{code}:layers", replace(options, batch_size=0), out)
    with pytest.raises(BadInput, match="did you mean 'cifar10'"):
        import_torch(f"{code}:layers", replace(options, dataset="cifar"), out)
    with pytest.raises(BadInput, match="do not fit 64 bits"):
        import_torch(f"{code}:zoo", replace(options, batch_size=2**24, dataset="imagenet", size=2**15), out)
    assert not out.exists()
    assert import_torch(f"{code}:zoo", replace(options, dataset="cifar10"), out) == 0
    assert read_graph(out).ops.count("ApplyAdam") == 59


def test_without_the_package_a_line_names_the_extra(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from driple.workloads.graphs import import_graph

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options = ImportOptions(setting=RING.setting, batch_size=8, optimiser="adam", sharding="balanced")
    with pytest.raises(BadInput, match=r"^PyTorch is not installed: pip install 'driple\[workloads-torch\]'$"):
        import_graph.import_torch(f"{code}:layers", options, code)
    with pytest.raises(BadInput, match=r"^ONNX is not installed: pip install 'driple\[onnx\]'$"):
        import_graph.import_onnx(code, options, code)
