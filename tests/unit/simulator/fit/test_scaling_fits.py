"""Fits of scaling: they recover the numbers of simulated jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driple.simulator.fit import multi_gpu, ps_scaling
from driple.simulator.fit.gpu_model import Origin
from driple.simulator.fit.grid_fit import GridFit
from driple.simulator.fit.host_files import assumed_host, fabric_files, host_file
from driple.simulator.fit.multi_gpu import MultiGpuRow
from driple.simulator.fit.ps_scaling import BYTE_S, TENSOR_S, ScalingRow, server_costs, steps_per_s
from driple.simulator.host_model import host_model


def test_the_best_point_of_a_grid_ignores_rows_that_are_left_out() -> None:
    fit = GridFit(
        [("a", 2.0), ("a", 4.0), ("b", 30.0)], [1.0, 2.0, 10.0], lambda row, k: k * row[1] / 2, lambda row: row[1]
    )
    assert fit.grid[fit.best()] == 2.0
    assert fit.left_out(lambda row: row[0]) == pytest.approx([2.0, 4.0, 30.0])
    assert fit.at(2) == pytest.approx([10.0, 20.0, 150.0])


def test_server_costs_come_back_from_simulated_speeds() -> None:
    true = (TENSOR_S[3], BYTE_S[2])
    host = server_costs(assumed_host(), *true)
    made = []
    for model, size, tensors, compute_s in (
        ("large", 12e6, 30, 0.06),
        ("many", 2e6, 220, 0.1),
    ):
        for workers in (1, 8):
            row = ScalingRow("made", model, 1, workers, 1.0, size, tensors)
            speed = steps_per_s(row, compute_s, host)
            made.append(ScalingRow("made", model, 1, workers, speed, size, tensors))
    fit = ps_scaling.scaling(made, assumed_host())
    assert fit.grid[fit.best()] == true


def test_the_ratio_of_computing_times_is_without_the_time_of_servers() -> None:
    host = server_costs(assumed_host(), TENSOR_S[3], BYTE_S[2])
    made = []
    for gpu, compute_s in (("slow", 0.15), ("fast", 0.05)):
        row = ScalingRow(gpu, "large", 1, 1, 1.0, 12e6, 100)
        made.append(replace(row, steps_per_s=steps_per_s(row, compute_s, host)))
    assert made[1].steps_per_s / made[0].steps_per_s < 2.9
    assert ps_scaling.times_as_long(made, "slow", "fast", host) == pytest.approx([3.0], rel=1e-3)


def test_an_all_reduce_starts_after_the_step_and_takes_its_bytes_and_tensors() -> None:
    row = MultiGpuRow("made", "v100", "one", "alexnet", 512, "pcie", 4, 0.0, 0.2)
    moved = multi_gpu.gradients("alexnet")
    # AlexNet has 61.1 million parameters in eight layers of a kernel and a bias.
    assert moved.bytes == pytest.approx(61.1e6 * 4, rel=0.001)
    assert moved.tensors == 16
    host = assumed_host()
    found = multi_gpu.step_time_s(row, 10e9, 1e-4, host)
    assert found == pytest.approx(0.2 + 16e-4 + 2 * 3 / 4 * moved.bytes / 10e9 + 6 * host.latency_s)


def test_written_hosts_and_fabrics_are_complete() -> None:
    origin = Origin(3, 1.0, "2026-11-18")
    host = host_model(host_file(1e-4, 1.2e-9, 15e9, 5e-5, origin, origin))
    assert (host.rpc_s, host.collective_s, host.nccl_bytes_per_s) == (5e-5, 5e-5, 15e9)
    total = host.server_send_s_per_byte + host.server_receive_s_per_byte + host.apply_s_per_byte
    assert total == pytest.approx(1.2e-9)
    one, ten, forty = (file.value("link_bytes_per_s") for file in fabric_files("2026-11-18"))
    assert one < ten / 9 < forty / 30
