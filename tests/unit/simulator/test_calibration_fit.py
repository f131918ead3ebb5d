"""The fits of a calibration: known parameters are found again in results that were made with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.calibration_result import (
    APPLY,
    ASYNC_STEP,
    PULL,
    PUSH,
    SYNC_STEP,
    CalibrationResult,
    CopyTime,
    OpTime,
    TransferTime,
    read_calibration,
    write_calibration,
)
from driple.simulator.fit.host_costs import fit_host, line
from driple.simulator.fit.microbenchmark import fit_device, op_step
from driple.simulator.fit.nonnegative import mean_error_pct, nonnegative_fit
from driple.simulator.host_model import host_model
from driple.simulator.op_costs import op_costs

PEAK, RATE = 1e11, 2e10
OWN_S = 1e-6


def timed(op: str, inputs: tuple[tuple[int, ...], ...], outputs: tuple[tuple[int, ...], ...], seconds: float) -> OpTime:
    read, written = (4.0 * sum(float(np.prod(shape)) for shape in shapes) for shapes in (inputs, outputs))
    return OpTime(op, inputs, outputs, read, written, seconds, seconds, 1.0, 5)


def matmul(rows: int, inner: int, columns: int, own_s: float = OWN_S) -> OpTime:
    flops, moved = 2.0 * rows * inner * columns, 4.0 * (rows * inner + inner * columns + rows * columns)
    seconds = own_s + flops / PEAK + 0.5 * moved / RATE
    return timed("MatMul", ((rows, inner), (inner, columns)), ((rows, columns),), seconds)


def convolution(side: int, inputs: int, outputs: int, own_s: float = OWN_S) -> OpTime:
    image, kernel, result = (8, side, side, inputs), (3, 3, inputs, outputs), (8, side, side, outputs)
    flops = 2.0 * 9 * 8 * side * side * inputs * outputs
    moved = 4.0 * sum(float(np.prod(shape)) for shape in (image, kernel, result))
    return timed("Conv2D", (image, kernel), (result,), own_s + 0.7 * flops / PEAK + 3 * moved / RATE)


def relu(size: int, own_s: float = OWN_S) -> OpTime:
    return timed("Relu", ((size,),), ((size,),), own_s + 8.0 * size / RATE)


def ops(own_s: float = OWN_S) -> tuple[OpTime, ...]:
    products = [
        matmul(*sizes, own_s) for sizes in ((2048, 2048, 2048), (64, 512, 512), (8, 1024, 4096), (512, 16, 512))
    ]
    layers = [convolution(*sizes, own_s) for sizes in ((32, 16, 16), (16, 64, 64), (8, 256, 256), (56, 32, 64))]
    rows = [relu(size, own_s) for size in (1 << 14, 1 << 18, 1 << 24)]
    tiny = [timed("Relu", ((4,),), ((4,),), own_s)]
    return (*products, *layers, *rows, *tiny)


def transfers() -> tuple[TransferTime, ...]:
    found = []
    for tensors, size in ((8, 4e6), (100, 1e6), (200, 1e4)):
        for what, per_tensor, per_byte in ((PULL, 50e-6, 1e-9), (PUSH, 70e-6, 2e-9), (APPLY, 0.0, 5e-10)):
            wall = tensors * per_tensor + size * per_byte
            found.append(TransferTime(what, tensors, size, wall, wall / 2, wall / 4, 1.0, 9))
    walls = {ASYNC_STEP: 2e-3, SYNC_STEP: 5e-3}
    steps = [TransferTime(what, 1, 4.0, wall, 1e-3, 1e-3, 1.0, 9) for what, wall in walls.items()]
    return (*found, *steps)


def result(own_s: float = OWN_S, **changes: object) -> CalibrationResult:
    made = CalibrationResult(
        "cpu", "A processor", 1, 4, "2026-01-01", "TensorFlow 2", False, 60.0, ops(own_s), transfers()
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_two_coefficients_by_hand() -> None:
    # 3 = 1 a + 2 b and 4 = 2 a + 2 b: a = 1, b = 1.
    found = nonnegative_fit(np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([3.0, 4.0]))
    assert found.tolist() == pytest.approx([1.0, 1.0])


def test_a_coefficient_that_would_be_negative_is_zero() -> None:
    # The line through (1, 1) and (2, 3) has the intercept -1. Without it, x = 1.2: the mean of x / 1 and 2 x / 3 is 1.
    found = nonnegative_fit(np.array([[1.0, 1.0], [2.0, 1.0]]), np.array([1.0, 3.0]))
    assert found.tolist() == pytest.approx([1.2, 0.0])


def test_a_column_of_zeros_has_the_coefficient_zero() -> None:
    assert nonnegative_fit(np.array([[0.0, 2.0], [0.0, 4.0]]), np.array([2.0, 4.0])).tolist() == pytest.approx(
        [0.0, 1.0]
    )


def test_the_error_is_a_mean_of_absolute_shares() -> None:
    assert mean_error_pct(np.array([1.1, 1.0]), np.array([1.0, 2.0])) == 30.0


def test_times_that_were_made_with_known_parameters_are_computed_again() -> None:
    made = result()
    file = fit_device(made, "mine").file
    assert op_costs(op_step(made.ops), file).busy_s == pytest.approx([one.wall_s for one in made.ops], rel=0.01)
    # Costs times rates are what was put in, whichever of the largest ops defines the rates.
    peak, rate = file.value("peak_flops_per_s"), file.value("memory_bytes_per_s")
    assert file.value("flop_cost.conv_fwd_3x3") / peak == pytest.approx(0.7 / PEAK, rel=0.01)
    assert file.value("byte_cost.conv_fwd_3x3") / rate == pytest.approx(3 / RATE, rel=0.01)
    assert file.value("launch_s.conv_fwd_3x3") == pytest.approx(OWN_S, rel=0.05)
    assert file.value("launch_s.default") == pytest.approx(OWN_S)
    assert file.kind == "cpu" and "dispatch_s" not in file.parameters
    assert all(one.unit and one.source and one.date for one in file.parameters.values())


def test_tiles_of_channels_are_found() -> None:
    def tiled(side: int, inputs: int, outputs: int) -> OpTime:
        rounded = convolution(side, inputs, -(-outputs // 16) * 16)
        return replace(convolution(side, inputs, outputs), wall_s=rounded.wall_s, processor_s=rounded.wall_s)

    layers = [tiled(*sizes) for sizes in ((32, 16, 12), (16, 64, 20), (8, 256, 40), (56, 32, 4), (32, 64, 64))]
    file = fit_device(result(ops=(*ops()[:4], *layers, *ops()[8:])), "mine").file
    assert file.value("tile_channels.outputs") == 16.0


def test_one_thread_counts_processor_time_and_several_count_wall_time() -> None:
    slow = tuple(replace(one, wall_s=3 * one.wall_s) for one in ops())
    peaks = [fit_device(result(ops=slow, threads=threads), "mine").file.value("peak_flops_per_s") for threads in (1, 2)]
    assert peaks[0] == pytest.approx(3 * peaks[1], rel=1e-3)
    assert any("Other work" in note for note in fit_device(result(ops=slow), "mine").file.notes)


def test_on_a_gpu_tiny_ops_give_the_dispatch_and_no_cost() -> None:
    # Every op waits 10 us for the framework: those that take less on the device do not show their own time.
    own = [replace(one, wall_s=max(one.wall_s, 10e-6)) for one in ops()]
    file = fit_device(result(ops=tuple(own), device="gpu:0", threads=0), "mine").file
    assert file.kind == "gpu"
    assert file.value("dispatch_s") == pytest.approx(10e-6)
    peak = file.value("peak_flops_per_s")
    assert file.value("flop_cost.conv_fwd_3x3") / peak == pytest.approx(0.7 / PEAK, rel=0.02)


def test_a_result_without_products_is_refused() -> None:
    with pytest.raises(BadInput, match="no matmul op"):
        fit_device(result(ops=ops()[4:]), "mine")


def test_the_host_file_has_what_the_transfers_were_made_with() -> None:
    copies = (CopyTime("to device", 1e8, 0.01, 1.0, 9), CopyTime("to host", 1e8, 0.02, 1.0, 9))
    file = fit_host(result(copies=copies), "mine-host")
    assert file is not None
    host = host_model(file)
    assert host.server_send_s_per_byte == pytest.approx(1e-9, rel=1e-3)
    assert host.server_receive_s_per_byte == pytest.approx(2e-9, rel=1e-3)
    assert host.worker_s_per_byte == pytest.approx(1e-9, rel=1e-3)
    assert host.apply_s_per_byte == pytest.approx(5e-10, rel=1e-3)
    assert host.rpc_s == pytest.approx(60e-6, rel=1e-3)
    assert host.session_s == pytest.approx(2e-3 - 2 * 60e-6, rel=1e-3)
    assert host.barrier_s == pytest.approx(3e-3)
    assert host.cpu_worker_s_per_tensor == pytest.approx(30e-6, rel=1e-3)
    assert host.cpu_server_s_per_byte == pytest.approx(1.5e-9 / 4, rel=1e-3)
    assert host.cpu_apply_s_per_byte == pytest.approx(5e-10 / 4 / 2, rel=1e-3)
    assert (host.cores, host.pcie_bytes_per_s) == (4.0, 5e9)


def test_a_result_without_transfers_has_no_host_file_and_with_too_few_is_refused() -> None:
    assert fit_host(result(transfers=()), "mine-host") is None
    with pytest.raises(BadInput, match="expected two or more of 'pull'"):
        line(result(transfers=transfers()[:3]), PULL, lambda one: one.wall_s)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_calibration(result(), tmp_path / "r.json")
    assert read_calibration(tmp_path / "r.json") == result()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("{}", "not a calibration result"),
        ('{"schema": "calibration", "schema_version": 9}', "schema version 1"),
    ],
)
def test_another_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(BadInput, match=f"r.json: .*{message}"):
        read_calibration(tmp_path / "r.json")


def test_a_time_of_nothing_is_refused_with_its_place(tmp_path: Path) -> None:
    broken = replace(ops()[1], wall_s=0.0)
    write_calibration(result(ops=(ops()[0], broken)), tmp_path / "r.json")
    with pytest.raises(BadInput, match=r"ops\[1\].wall_s"):
        read_calibration(tmp_path / "r.json")
