"""Op times, against cases that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU, FABRIC, GPU, DeviceFile, Parameter
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.op_costs import op_costs
from driple.simulator.op_kinds import op_kinds, tiled_flops

MICRO = 1e-6
PLAIN = {
    "peak_flops_per_s": 1e12,
    "memory_bytes_per_s": 1e9,
    "flop_cost.other": 0.0,
    "byte_cost.other": 1.0,
    "launch_s.default": 0.0,
    "memory_cost.default": 1.0,
}


def device(kind: str = GPU, /, **values: float) -> DeviceFile:
    named = {**PLAIN, **{name.replace("__", "."): value for name, value in values.items()}}
    return DeviceFile("x", "X", kind, {name: Parameter(value, "", "", "") for name, value in named.items()})


def step(*ops: str, flops: float = 0.0, read: float = 0.0, written: float = 0.0) -> TrainingStep:
    """Ops of equal amounts, without windows."""
    each = np.ones(len(ops))
    return TrainingStep(
        ops=ops,
        flops=flops * each,
        read_bytes=read * each,
        written_bytes=written * each,
        windows=np.zeros((len(ops), 6), dtype=np.int64),
        executions=each,
        on_device=np.ones(len(ops), dtype=bool),
        pulls=(),
        pushes=(),
    )


def convolution(op: str, window: tuple[int, ...]) -> TrainingStep:
    return replace(step(op, flops=1e9, read=1e3), windows=np.array([window], dtype=np.int64))


def test_an_op_costs_launch_flops_and_bytes() -> None:
    one = step("MatMul", flops=2e9, read=3e6, written=1e6)
    costs = op_costs(one, device(flop_cost__matmul=1.5, byte_cost__matmul=0.5, launch_s__matmul=10 * MICRO))
    # 10 us + 2 GFLOP * 1.5 / 1 TFLOP/s + 4 MB * 0.5 / 1 GB/s
    assert costs.busy_s.tolist() == pytest.approx([10e-6 + 3e-3 + 2e-3])
    assert costs.wall_s.tolist() == costs.busy_s.tolist()


def test_an_op_that_runs_three_times_costs_three_times() -> None:
    one = replace(step("MatMul", flops=1e9, read=1e6), executions=np.array([3.0]))
    file = device(flop_cost__matmul=1.0, launch_s__default=10 * MICRO)
    assert op_costs(one, file).busy_s.tolist() == pytest.approx([3 * (10e-6 + 1e-3 + 1e-3)])


def test_memory_is_accessed_while_an_op_moves_its_bytes() -> None:
    # 2 MB at 1 GB/s: 10 us + 2 ms by FLOPs + 1 ms by bytes. Memory is accessed for as long as the bytes take: 1 ms by
    # byte_cost, but no less than by memory_cost, and no longer than the op runs.
    one = step("Relu", flops=2e9, read=1e6, written=1e6)
    costs = {"flop_cost__elementwise": 1.0, "launch_s__elementwise": 10 * MICRO, "byte_cost__elementwise": 0.5}
    for memory_cost, expected_s in ((0.0, 1e-3), (0.25, 1e-3), (0.9, 1.8e-3), (5.0, 3.01e-3)):
        found = op_costs(one, device(memory_cost__default=memory_cost, **costs))
        assert found.busy_s.tolist() == pytest.approx([3.01e-3])
        assert found.memory_s.tolist() == pytest.approx([expected_s])


def test_a_gpu_moves_no_byte_faster_than_its_bandwidth() -> None:
    one = step("Relu", flops=1e9, read=1e6, written=3e6)  # 1 ms by FLOPs, 4 ms by bytes
    costs = {"flop_cost__elementwise": 1.0, "byte_cost__elementwise": 0.1}
    assert op_costs(one, device(**costs)).busy_s.tolist() == pytest.approx([4e-3])
    assert op_costs(one, device(CPU, **costs)).busy_s.tolist() == pytest.approx([1.4e-3])  # its caches are faster


def test_a_slow_dispatch_bounds_small_ops_and_hides_behind_large_ones() -> None:
    # Busy 2 us each; dispatched at 5, 10 and 15 us: ends are 7, 12 and 17 us.
    small = step("Relu", "Relu", "Relu", flops=1.0, read=1e3, written=1e3)
    assert np.cumsum(op_costs(small, device(dispatch_s=5 * MICRO)).wall_s).tolist() == pytest.approx(
        [7e-6, 12e-6, 17e-6]
    )
    # Busy 20 us each; only the first waits for its dispatch.
    large = step("Relu", "Relu", "Relu", flops=1.0, read=1e4, written=1e4)
    assert np.cumsum(op_costs(large, device(dispatch_s=5 * MICRO)).wall_s).tolist() == pytest.approx(
        [25e-6, 45e-6, 65e-6]
    )


def test_ops_that_no_device_executes_are_dispatched_only() -> None:
    one = step("Identity", "Relu", flops=1.0, read=1e3, written=0.0)
    costs = op_costs(one, device(dispatch_s=5 * MICRO, dispatch_s__free=2 * MICRO, launch_s__default=1 * MICRO))
    assert costs.busy_s.tolist() == pytest.approx([0.0, 2e-6])
    assert costs.wall_s.tolist() == pytest.approx([2e-6, 5e-6 + 2e-6])


def test_ops_on_the_host_are_busy_only_where_the_host_is_the_device() -> None:
    one = replace(step("Relu", flops=1.0, read=1e6), on_device=np.array([False]))
    assert op_costs(one, device(GPU)).busy_s.tolist() == [0.0]
    assert op_costs(one, device(CPU)).busy_s.tolist() == pytest.approx([1e-3])


@pytest.mark.parametrize(
    ("given", "expected_s"),
    [
        ({"byte_cost__normalisation_grad": 4.0, "byte_cost__normalisation": 2.0}, 4e-3),
        ({"byte_cost__normalisation": 2.0}, 2e-3),
        ({}, 1e-3),
    ],
)
def test_a_kind_without_a_cost_has_that_of_its_class_or_of_others(given: dict[str, float], expected_s: float) -> None:
    one = step("FusedBatchNormGradV3", flops=1.0, read=1e6)
    assert op_costs(one, device(**given)).busy_s.tolist() == pytest.approx([expected_s])


@pytest.mark.parametrize(
    ("op", "window", "kind"),
    [
        ("Conv2D", (1, 1, 64, 64, 1, 56), "conv_fwd_1x1"),
        ("Conv2D", (1, 1, 64, 64, 2, 56), "conv_fwd_1x1"),
        ("Conv2D", (3, 3, 64, 64, 1, 56), "conv_fwd_3x3"),
        ("Conv2D", (3, 3, 64, 64, 2, 56), "conv_fwd_other"),
        ("Conv2DBackpropInput", (5, 5, 64, 64, 1, 56), "conv_dgrad_5x5"),
        ("Conv2DBackpropFilter", (1, 7, 64, 64, 1, 17), "conv_wgrad_rect"),
        ("Conv2DBackpropInput", (7, 7, 3, 64, 2, 112), "image_gradient"),
        ("DepthwiseConv2dNativeBackpropFilter", (3, 3, 64, 1, 1, 56), "depthwise_wgrad"),
    ],
)
def test_kinds_of_convolutions(op: str, window: tuple[int, ...], kind: str) -> None:
    assert op_kinds(convolution(op, window)) == [kind]


@pytest.mark.parametrize(
    ("op", "kind", "of_class"),
    [
        ("SparseSoftmaxCrossEntropyWithLogits", "cross_entropy", "reduction"),
        ("Softmax", "softmax", "reduction"),
        ("BatchMatMulV2", "batch_matmul", "matmul"),
        ("RandomUniform", "random", "elementwise"),
    ],
)
def test_types_that_are_slower_than_their_class_have_a_kind_of_their_own(op: str, kind: str, of_class: str) -> None:
    one = step(op, flops=1.0, read=1e6)
    assert op_kinds(one) == [kind]
    plain = {f"byte_cost__{of_class}": 2.0}
    assert op_costs(one, device(**plain)).busy_s.tolist() == pytest.approx([2e-3])  # a file that lacks the kind
    assert op_costs(one, device(**plain, **{f"byte_cost__{kind}": 20.0})).busy_s.tolist() == pytest.approx([20e-3])


def test_channels_are_rounded_up_to_tiles() -> None:
    one = convolution("Conv2D", (3, 3, 12, 48, 1, 32))
    # 12 of 16 and 48 of 64 channels: 16/12 * 64/48 of the FLOPs.
    assert tiled_flops(one, 16, 64).tolist() == pytest.approx([1e9 * 16 / 12 * 64 / 48])
    assert tiled_flops(one, 0, 0).tolist() == [1e9]


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="^kind: expected gpu or cpu, got fabric; "):
        op_costs(step("Relu", flops=1.0, read=1.0), device(FABRIC))


@pytest.mark.parametrize("name", PLAIN)
def test_a_missing_parameter_is_named(name: str) -> None:
    whole = device()
    lacking = replace(whole, parameters={key: one for key, one in whole.parameters.items() if key != name})
    with pytest.raises(BadInput, match=f"^parameters.{name} is missing; .*driple-calibrate"):
        op_costs(step("Relu", flops=1.0, read=1.0), lacking)


def test_a_graph_without_sizes_has_no_times() -> None:
    with pytest.raises(BadInput, match="no FLOPs or no shapes"):
        op_costs(step("Relu"), device())
