"""TrainingStep: from graph files that TensorFlow's writer format has, and from the stored graphs of the zoo."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import read_step, stored_step, write_stored_graph
from driple.pipeline.graph.training_step import window_of

P1 = Setting.parse("v100-p1w2-1g")
P2 = Setting.parse("v100-p2w2-1g")


def workload(model: str, batch_size: int = 32, **more: object) -> Workload:
    dataset = {"resnet20": "cifar10", "resnet50": "imagenet", "nmt_small": "europarl", "lenet": "imagenet"}[model]
    sizes: dict[str, dict[str, int]] = {
        "resnet20": {"image_size": 32}, "resnet50": {"image_size": 224}, "lenet": {"image_size": 28},
        "nmt_small": {"sequence_length": 50},
    }  # fmt: skip
    return Workload(model, dataset, batch_size, **{**sizes[model], **more})  # type: ignore[arg-type]


def test_resnet50_has_its_published_parameters_and_flops() -> None:
    step = stored_step(workload("resnet50"), P1)
    assert step is not None
    # 25.6 million parameters of 4 bytes are read, and with the moving averages of batch normalisation sent.
    assert step.pulled_bytes == pytest.approx(25.6e6 * 4, rel=0.01)
    # 3.9 billion multiply-adds forward, twice that backward, for 32 images.
    assert step.flops.sum() == pytest.approx(32 * 3 * 2 * 3.87e9, rel=0.05)
    windows = {tuple(row[:2]) for row in step.windows.tolist() if row[0]}
    assert windows == {(7, 7), (1, 1), (3, 3)}
    assert {row[4] for row in step.windows.tolist() if row[0]} == {1, 2}


def test_flops_and_activations_grow_with_the_batch_and_variables_do_not() -> None:
    small, large = (stored_step(workload("resnet20", size), P1) for size in (16, 64))
    assert small is not None and large is not None
    assert large.flops.sum() == pytest.approx(4 * small.flops.sum(), rel=0.01)
    assert large.pulled_bytes == small.pulled_bytes


def test_servers_share_variables_and_each_gradient_goes_to_its_variable() -> None:
    step = stored_step(workload("resnet50"), P2)
    assert step is not None
    pulled, pushed = (
        [sum(t.bytes for t in side if t.server == k) for k in (0, 1)] for side in (step.pulls, step.pushes)
    )
    assert min(pulled) > 0.4 * sum(pulled)
    assert pushed == pytest.approx(pulled, rel=0.02)


def test_an_all_reduce_adds_up_the_gradients_that_updates_take() -> None:
    step = stored_step(workload("resnet50", strategy="allreduce"), Setting.parse("v100-p0w2-1g"))
    assert step is not None
    assert (step.pulls, step.pushes) == ((), ())
    # Gradients of all parameters, each after the backward pass.
    assert sum(one.bytes for one in step.reduced) == pytest.approx(25.6e6 * 4, rel=0.01)
    assert {step.ops[one.op] for one in step.reduced} == {"ApplyMomentum"}
    with_servers = stored_step(workload("resnet50"), P1)
    assert with_servers is not None and with_servers.reduced == ()


def test_ops_of_a_loop_run_once_for_each_token() -> None:
    step = stored_step(workload("nmt_small"), P1)
    assert step is not None
    assert set(step.executions.tolist()) == {1.0, 50.0}


def test_the_optimiser_does_not_change_the_ops_of_a_worker() -> None:
    assert stored_step(workload("resnet20", optimiser="adam"), P1) is not None
    assert stored_step(workload("resnet20", width=2.0), P1) is None


def test_a_written_stored_graph_has_no_shapes_to_simulate_from(tmp_path: Path) -> None:
    path = tmp_path / "worker.parquet"
    assert write_stored_graph(workload("resnet20"), P1, path)
    with pytest.raises(BadInput, match=r"worker\.parquet: the graph has no shapes .* build it again with TensorFlow"):
        read_step(path)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "window"),
    [
        ("Conv2D", [[8, 56, 56, 64], [3, 3, 64, 128]], [[8, 28, 28, 128]], [3, 3, 64, 128, 2, 28]),
        ("Conv2DBackpropInput", [[4], [1, 1, 64, 256], [8, 56, 56, 256]], [[8, 56, 56, 64]], [1, 1, 64, 256, 1, 56]),
        ("Conv2DBackpropFilter", [[8, 224, 224, 3], [4], [8, 112, 112, 64]], [[7, 7, 3, 64]], [7, 7, 3, 64, 2, 112]),
        ("Conv2D", [[8, 56, 56, 64], None], [[8, 28, 28, 128]], [0] * 6),
        ("MatMul", [[2, 3], [3, 4]], [[2, 4]], [0] * 6),
    ],
)
def test_windows(op: str, inputs: list[list[int] | None], outputs: list[list[int]], window: list[int]) -> None:
    assert window_of(op, inputs, outputs) == window


def test_transfers_are_in_the_order_of_ops() -> None:
    step = stored_step(workload("lenet"), P2)
    assert step is not None
    for side in (step.pulls, step.pushes):
        ops = [transfer.op for transfer in side]
        assert ops == sorted(ops)
