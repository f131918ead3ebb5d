"""Graphs of torch models: the work and the traffic of TensorFlow's graphs of the same models, in the same format."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import CLASSES, OpGraph, TrainingStep, class_numbers, class_of, read_graph, read_step
from driple.pipeline.graph.stored_graph import stored_graph, stored_step
from driple.simulator.op_kinds import IMAGE_GRADIENT, op_kinds
from driple.workloads.graphs import graph_writer
from driple.workloads.graphs.step_builder import StepKind
from driple.workloads.runtime.job import job_without_hosts, workload_of
from driple.workloads.torch_graphs import aten_ops, torch_zoo_graph
from driple.workloads.torch_graphs.torch_graph import creation_order, graph_of
from driple.workloads.torch_graphs.torch_recorder import record
from driple.workloads.torch_jobs import torch_inputs
from driple.workloads.torch_jobs.training import loss_of
from driple.workloads.torch_models import torch_zoo

RING = "cpu-p0w2-1g"
MODELS = ("resnet20", "vgg16", "mobilenetv2", "transformer", "densenet121", "lenet")
EXACT = ("convolution", "depthwise", "matmul")


def job_of(model: str, setting: str = RING, batch: int = 8, strategy: str = "allreduce") -> JobSpec:
    workload = workload_of(model, None, batch, strategy=strategy, framework="torch")
    return job_without_hosts(Setting.parse(setting), workload)


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[OpGraph, TrainingStep, str]:
    """The graph of torch; TensorFlow's is stored with driple."""
    path = tmp_path_factory.mktemp("graphs") / "g.parquet"
    graph_writer.write(torch_zoo_graph.of_job(job_of(request.param), "worker:0"), path)
    return read_graph(path), read_step(path), request.param


def in_tensorflow(model: str) -> tuple[OpGraph, TrainingStep]:
    workload = replace(job_of(model).run.workload, framework="tensorflow", backend="grpc")
    graph, step = stored_graph(workload, Setting.parse(RING)), stored_step(workload, Setting.parse(RING))
    assert graph is not None and step is not None
    return graph, step


def flops_by_class(step: TrainingStep) -> dict[str, float]:
    return dict(zip(CLASSES, np.bincount(class_numbers(step.ops), step.flops, minlength=len(CLASSES)), strict=True))


def test_bytes_between_tasks_are_those_of_tensorflow(both: tuple[OpGraph, TrainingStep, str]) -> None:
    graph, step, model = both
    with torch.device("meta"):
        weights = sum(4 * one.numel() for one in torch_zoo.network(job_of(model).run.workload).parameters())
    other, other_step = in_tensorflow(model)
    assert graph.bytes_sent == graph.bytes_received == weights == other.bytes_sent == other.bytes_received
    assert sum(one.bytes for one in step.reduced) == sum(one.bytes for one in other_step.reduced) == weights
    assert len(step.reduced) == len(other_step.reduced)  # as many variables


def test_flops_are_those_of_tensorflow(both: tuple[OpGraph, TrainingStep, str]) -> None:
    """TensorFlow's graph has the gradient of the input image, which nothing takes, and torch does not compute it."""
    _, step, model = both
    other = in_tensorflow(model)[1]
    found, expected = flops_by_class(step), flops_by_class(other)
    for name in EXACT:
        assert found[name] == pytest.approx(expected[name], rel=1e-6), name
    unused = sum(flops for flops, kind in zip(other.flops, op_kinds(other), strict=True) if kind == IMAGE_GRADIENT)
    assert found["convolution_gradient"] == pytest.approx(expected["convolution_gradient"] - unused, rel=1e-6)
    assert step.flops.sum() == pytest.approx(other.flops.sum() - unused, rel=0.003)


def test_convolutions_have_the_windows_of_tensorflow(both: tuple[OpGraph, TrainingStep, str]) -> None:
    _, step, model = both

    def windows(one: TrainingStep) -> Counter[tuple[str, tuple[int, ...]]]:
        pairs = zip(op_kinds(one), map(tuple, one.windows.tolist()), strict=True)
        return Counter((kind, window) for kind, window in pairs if any(window) and kind != IMAGE_GRADIENT)

    assert windows(step) == windows(in_tensorflow(model)[1])


def test_a_graph_is_whole_and_sized(both: tuple[OpGraph, TrainingStep, str]) -> None:
    graph, step, model = both
    assert graph.left_out == graph.unsized == step.unsized == 0
    assert {class_of(op) for op in graph.ops} <= {*CLASSES} - {"other"}
    # Reductions begin while the backward pass goes on.
    assert 0.3 * len(step.ops) < min(one.op for one in step.reduced) < 0.9 * len(step.ops)


@pytest.mark.parametrize("model", ["resnet20", "mobilenetv2", "vgg16"])
def test_variables_are_on_the_servers_of_tensorflow(model: str, tmp_path: Path) -> None:
    """PyTorch has no servers, but a model may be predicted as if it had some."""
    workload = job_of(model).run.workload
    with torch.device("meta"):
        net, batch = torch_zoo.network(workload).train(), torch_inputs.empty_batch(workload)
        step = record(net, batch, lambda: loss_of(net(batch), batch)[0])
    for setting in (Setting.parse("v100-p1w2-1g"), Setting.parse("cpu-p2w2-1g"), Setting.parse("cpu-p3w2-1g")):
        kind = StepKind(setting, "ps")
        graph_writer.write(graph_of(step, creation_order(net), kind, model, "{}"), tmp_path / "g.parquet")
        found = read_graph(tmp_path / "g.parquet")
        other = replace(workload, framework="tensorflow", backend="grpc", strategy="ps")
        expected = stored_graph(other, setting)
        assert expected is not None
        assert (found.bytes_received, found.bytes_busiest) == (expected.bytes_received, expected.bytes_busiest)
        # TensorFlow also sends a few scalars: the decay of moving averages, the counter of steps.
        assert 0 <= expected.bytes_sent - found.bytes_sent < 1000
        servers = {one.server for one in read_step(tmp_path / "g.parquet").pushes}
        assert servers == set(range(setting.servers))


def test_pair_averaging_and_optimisers(tmp_path: Path) -> None:
    job = job_of("lenet", strategy="pair_averaging")
    slots = {}
    for optimiser in ("sgd", "momentum", "rmsprop", "adam"):
        work = replace(job.run.workload, optimiser=optimiser)
        graph = torch_zoo_graph.of_job(replace(job, run=replace(job.run, workload=work)), "worker:1")
        ops = Counter(node.op for node in graph.nodes)
        slots[optimiser] = ops["VariableV2"] / 8 - 1
        assert {node.device for node in graph.nodes} == {"/job:worker/replica:0/task:1/device:CPU:0"}
        assert not ops["CollectiveReduceV2"]  # a worker takes the model of another
        graph_writer.write(graph, tmp_path / "g.parquet")
        assert read_graph(tmp_path / "g.parquet").bytes_sent == 8691360
    assert slots == {"sgd": 0, "momentum": 1, "rmsprop": 1, "adam": 2}


def test_a_graph_says_what_it_is_of(tmp_path: Path) -> None:
    graph = torch_zoo_graph.of_job(job_of("lenet"), "worker:0")
    assert (graph.framework, graph.framework_version, graph.tensorflow) == ("torch", torch.__version__, None)
    assert (graph.setting, graph.task, graph.source) == (RING, "worker:0", "lenet")
    nodes = {node.name: node for node in graph.nodes}
    first = nodes["convolution_0"]
    assert (first.op, first.shapes, first.dtypes) == ("Conv2D", [[8, 28, 28, 32]], ["float32"])
    assert first.flops == 2 * 8 * 28 * 28 * 32 * 5 * 5 * 3
    assert nodes["layers.0.weight"].shapes == [[5, 5, 3, 32]]
    kinds = Counter(node.op for node in graph.nodes)
    assert kinds["MaxPool"] == kinds["MaxPoolGrad"] == 2 and kinds["MatMul"] == 6


def test_extraction_leaves_the_random_numbers_of_training() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    torch_zoo_graph.of_job(job_of("transformer", batch=2), "worker:0")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_without_values_is_like_a_real_one() -> None:
    for model in ("lenet", "transformer"):
        workload = job_of(model).run.workload
        real = next(torch_inputs.batches(workload, seed=1, worker=0, data_dir=None))
        empty = torch_inputs.empty_batch(workload)
        assert {name: (one.shape, one.dtype) for name, one in empty.items()} == {
            name: (one.shape, one.dtype) for name, one in real.items()
        }


def test_the_table_of_ops_has_ops_of_torch_and_known_types() -> None:
    assert [name for name in aten_ops.ATEN_OPS if not hasattr(torch.ops.aten, name)] == []
    types = set(aten_ops.ATEN_OPS.values()) - {aten_ops.PASS, aten_ops.NOTHING}
    assert {op for op in types if class_of(op) == "other"} == set()


@pytest.mark.parametrize(
    ("name", "op"),
    [
        *(("add_", "AddV2"), ("__and__", "LogicalAnd"), ("detach", aten_ops.PASS)),
        *(("grid_sampler_2d_backward", "GridSampler2dGrad"), ("_fft_r2c", "FftR2c")),
    ],
)
def test_op_types(name: str, op: str) -> None:
    assert aten_ops.op_type(name) == op
