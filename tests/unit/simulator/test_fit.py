"""Fits to measured rows: formulas by hand, and known parameters from rows that the simulator itself made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import DeviceFile
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import TrainingStep, Transfer, read_steps, step_key, write_steps
from driple.simulator.fit import cli_rows
from driple.simulator.fit.cpu_files import device_file, host_file, host_values
from driple.simulator.fit.fit_rows import fit_rows, fit_speed
from driple.simulator.fit.measured_jobs import MeasuredJob, cpu_s, jobs_of, read_jobs
from driple.simulator.fit.op_rates import GENERAL, OWN, SIZED, OpRates, amounts, class_rates, work_of
from driple.simulator.fit.replay import Replay, simulated, step_times, targets
from driple.simulator.fit.server_rates import ServerRates, fit_server_rates, server_amounts
from driple.simulator.fit.step_source import StepFile
from driple.simulator.fit.timing import CONSTANTS, search
from driple.simulator.host_model import HostModel, host_model
from driple.simulator.narrow_layers import narrow_factor
from driple.simulator.op_costs import SPEED, op_costs
from driple.simulator.simulation import simulate_workload

ROOT = Path(__file__).parents[3]
SETTING = Setting.parse("cpu-p1w2-1g")
TODAY = "2026-11-18"


def step() -> TrainingStep:
    """A 3x3 convolution from 4 to 8 channels, an activation, another name of it; one variable in, one gradient out."""
    return TrainingStep(
        ops=("Conv2D", "Relu", "Identity"),
        flops=np.array([1e9, 0.0, 0.0]),
        read_bytes=np.array([3e6, 1e6, 1e6]),
        written_bytes=np.array([1e6, 1e6, 1e6]),
        windows=np.array([[3, 3, 4, 8, 1, 32], [0] * 6, [0] * 6]),
        executions=np.array([1.0, 2.0, 3.0]),
        on_device=np.ones(3, dtype=bool),
        pulls=(Transfer(0, 0, 1000.0),),
        pushes=(Transfer(2, 0, 500.0),),
    )


def rates(flop_s: float = 2e-11, byte_s: float = 1e-10) -> OpRates:
    return OpRates(
        flop_s=dict.fromkeys(("convolution", "convolution_gradient", "depthwise", "matmul"), flop_s),
        byte_s=dict.fromkeys(SIZED, byte_s),
        op_s=1e-5,
        free_op_s=1e-6,
        moved_s=1.5e-9,
        tensor_s=1e-4,
        session_s=1e-3,
        narrow=8.0,
        error_pct=0.0,
        points=1,
    )


def test_amounts_of_a_step() -> None:
    found = dict(zip((*GENERAL, *OWN), amounts(step(), 0.0).tolist(), strict=True))
    assert found["flops"] == found["flops convolution"] == 1e9
    assert found["bytes convolution"] == 4e6
    assert found["bytes elementwise"] == 2 * 2e6
    assert found["bytes"] == 8e6
    assert (found["ops"], found["free ops"]) == (3, 3)
    assert (found["moved bytes"], found["tensors"], found["session"]) == (1500, 2, 1)


def test_narrow_layers_cost_more() -> None:
    assert narrow_factor(step(), 8.0).tolist() == [(1 + 8 / 4) * (1 + 8 / 8), 1.0, 1.0]
    assert amounts(step(), 8.0)[0] == 6e9


def test_a_device_file_has_the_times_of_its_rates() -> None:
    device = device_file(rates(), "test", TODAY)
    costs = op_costs(step(), device).wall_s
    assert costs == pytest.approx([1e-5 + 6e9 * 2e-11 + 4e6 * 1e-10, 2 * (1e-5 + 2e6 * 1e-10), 3e-6], rel=1e-3)
    fast = device_file(rates(), "test", TODAY, speed=4.0)
    assert op_costs(step(), fast).wall_s == pytest.approx(costs / 4)


def test_the_speed_of_a_machine_holds_for_its_host() -> None:
    host = HostModel(**{**HOST, "session_s": 1e-3})
    fast = host.at_speed(2.0)
    assert fast.cpu_server_s_per_byte == host.cpu_server_s_per_byte / 2
    assert (fast.session_s, fast.cores) == (host.session_s, host.cores)


def test_class_rates_are_found_and_unseen_classes_have_the_shared_rate() -> None:
    random = np.random.default_rng(0)
    work = np.zeros((60, len(GENERAL) + len(OWN)))
    matmul, convolution = len(GENERAL) + OWN.index("flops matmul"), len(GENERAL) + OWN.index("flops convolution")
    work[:, matmul], work[:, convolution] = random.uniform(0, 1e10, 60), random.uniform(1e9, 1e10, 60)
    work[:, 0] = work[:, matmul] + work[:, convolution]
    work[:, GENERAL.index("session")] = 1.0
    seconds = work[:, matmul] * 4e-11 + work[:, convolution] * 1e-11 + 2e-3
    found = class_rates(work, seconds, penalty=0.03)
    assert found[matmul] == pytest.approx(4e-11, rel=0.02)
    assert found[convolution] == pytest.approx(1e-11, rel=0.02)
    unseen = found[len(GENERAL) + OWN.index("flops depthwise")]
    assert 1e-11 < unseen < 4e-11
    assert (found >= 0).all()


def test_servers_update_once_or_for_each_worker() -> None:
    workload = Workload("resnet20", "cifar10", 8, optimiser="adam", update="sync")
    assert server_amounts(step(), workload, SETTING).tolist() == [3000, 4, 4 * 500, 2]
    assert server_amounts(step(), replace(workload, update="async"), SETTING).tolist() == [3000, 4, 2 * 4 * 500, 2]


def test_server_rates_are_found() -> None:
    random = np.random.default_rng(0)
    work = random.uniform(0.1, 1, (40, 4)) * [1e8, 1e3, 1e8, 2]
    found = fit_server_rates(list(work), work @ [1e-9, 1e-4, 2e-10, 3e-3])
    assert found.byte_s == pytest.approx(1e-9, rel=0.1)
    assert found.tensor_s == pytest.approx(1e-4, rel=0.1)


def test_processor_seconds_of_a_row() -> None:
    row = {"step_s": 0.5, "gpu_burst_s": 0.3, "gpu_idle_s": 0.1, "gpu_burst_pct": 90.0, "gpu_idle_pct": 10.0}
    assert cpu_s(row) == pytest.approx(0.5 * (0.3 * 0.9 + 0.1 * 0.1) / 0.4)
    assert cpu_s({**row, "gpu_idle_s": None}) == pytest.approx(0.5 * 0.9)
    assert cpu_s({**row, "gpu_burst_pct": None}) is None


def test_steps_are_the_same_after_writing(tmp_path: Path) -> None:
    workload = Workload("vgg11", "imagenet", 4, width=0.25, image_size=64)
    write_steps({step_key(workload, 1): step()}, tmp_path / "steps.parquet")
    ((key, found),) = read_steps(tmp_path / "steps.parquet")
    assert key == step_key(replace(workload, optimiser="adam", update="async"), 1)
    assert (found.ops, found.pulls, found.pushes) == (step().ops, step().pulls, step().pushes)
    for name in ("flops", "read_bytes", "written_bytes", "windows", "executions"):
        assert getattr(found, name).tolist() == getattr(step(), name).tolist()
    assert StepFile(tmp_path / "steps.parquet").step(workload, SETTING).ops == step().ops


def test_another_file_is_no_step_file() -> None:
    with pytest.raises(BadInput, match=r"not a file of training steps"):
        StepFile(ROOT / "datasets" / "cpu-p1w1-1g.parquet")


SERVERS = ServerRates(byte_s=1e-9, tensor_s=1e-4, apply_s=2e-10, session_s=2e-3, error_pct=0.0, points=1)
HOST: dict[str, float] = {
    **dict.fromkeys(("rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte"), 0.0),
    **{"worker_s_per_byte": 0.0, "session_s": 2e-4, "barrier_s": 1e-3, "noise": 0.01, "start_phase": 0.5, "cores": 1.6},
    **host_values(rates(), SERVERS),
}
MADE = tuple(
    Workload(model, dataset, batch, optimiser="adam" if model == "ncf" else "momentum", update=update, image_size=side)
    for model, dataset, batch, side in (
        ("resnet20", "cifar10", 8, 32),
        ("resnet56", "cifar10", 16, 32),
        ("densenet40_k12", "cifar10", 4, 32),
        ("ncf", "movielens", 256, None),
        ("resnet32_v2", "cifar10", 32, 32),
        ("alexnet", "imagenet", 4, 224),
        ("googlenet", "imagenet", 2, 224),
    )
    for update in ("sync", "async")
)


def made(device: DeviceFile, host: HostModel) -> list[Replay]:
    """Rows that the simulator made with known parameters."""
    return [_made(workload, device, host) for workload in MADE]


def _made(workload: Workload, device: DeviceFile, host: HostModel) -> Replay:
    steps = StepFile(Path("none")).step(workload, SETTING)
    job = MeasuredJob(workload, SETTING, workload.model[:5], "train", APART, True, 200.0, 1.2e8, {}, None, None)
    found = Replay(job, steps)
    run = simulated(found, device, host)
    # Processor seconds between the first and the last whole step of the first worker.
    start, end = run.begun[0][1], run.begun[0][-1]
    count = len(run.begun[0]) - 2

    def used(tasks: Sequence[str]) -> float:
        total = sum(float(np.diff(run.of_task(task, "cpu").until(np.array([start, end])))[0]) for task in tasks)
        return total / count

    values = targets(found, device, host)
    measured = replace(job, targets=values, worker_cpu_s=used(["worker:0"]), server_cpu_s=used(["ps:0"]))
    return Replay(measured, steps)


APART = (("ps:0",), ("worker:0",), ("worker:1",))


@pytest.fixture(scope="module")
def known() -> tuple[DeviceFile, HostModel, list[Replay]]:
    device, host = device_file(rates(), "test", TODAY), HostModel(**HOST)
    return device, host, made(device, host)


def test_the_fit_finds_the_parameters_that_made_the_rows(known: tuple[DeviceFile, HostModel, list[Replay]]) -> None:
    device, host, rows = known
    found_device, found_host = fit_rows(rows, source="test", date=TODAY, tries=12)
    model = host_model(found_host)
    assert model.cpu_server_s_per_byte == pytest.approx(host.cpu_server_s_per_byte, rel=0.3)
    truth = np.array([one.job.targets["step_s"] for one in rows])
    errors = np.abs(np.array(step_times(rows, found_device, model)) / truth - 1)
    assert errors.mean() < 0.05
    total = [op_costs(one.step, found_device).wall_s.sum() / op_costs(one.step, device).wall_s.sum() for one in rows]
    assert np.median(np.abs(np.array(total) - 1)) < 0.05


def test_the_search_finds_the_number_of_processors(known: tuple[DeviceFile, HostModel, list[Replay]]) -> None:
    device, host, rows = known
    started = replace(host, cores=2.2)
    found, error = search(rows[:6], device, started, constants={"cores": CONSTANTS["cores"]}, tries=20)
    assert found.cores == pytest.approx(host.cores, rel=0.05)
    assert error < 0.03
    assert replace(found, cores=2.2) == started  # nothing else changed


def test_the_speed_of_another_machine_is_found(known: tuple[DeviceFile, HostModel, list[Replay]]) -> None:
    device, host, _ = known
    file = host_file(host, "test", TODAY, 1, 0.0, "host")
    fast = replace(device, parameters={**device.parameters, SPEED: replace(device.parameters[SPEED], value=2.5)})
    rows = made(fast, host)[:5]
    found = fit_speed(rows, device, file, source="test", date=TODAY)
    assert found.parameters[SPEED].value == pytest.approx(2.5, rel=0.05)
    assert found.parameters[SPEED].points == 5


def row(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"model": "resnet20", "dataset": "cifar10", "batch_size": 8, "optimiser": "momentum"}
    found |= {"update": "sync", "image_size": 32.0, "sequence_length": None, "width": 1.0, "strategy": "ps"}
    found |= {"sharding": "balanced", "framework": "tensorflow", "family": "resnet", "split_architecture": "train"}
    found |= {"role": "worker", "run_id": "a", "provenance": "measured", "placement": '[["ps:0"],["worker:0"]]'}
    found |= {"sampling_hz": 200.0, "host_kind": "lab", "step_s": 0.1, "measured_rate_mbit": 960.0}
    return {**found, **changed}


def test_rows_of_a_workload_become_one_job() -> None:
    cpu = {"gpu_burst_s": 0.1, "gpu_idle_s": 0.0, "gpu_burst_pct": 50.0, "gpu_idle_pct": None}
    rows = [row(**cpu), row(step_s=0.2, run_id="b", **cpu), row(role="ps", **cpu), row(role="ps", **cpu)]
    (job,) = jobs_of(rows, SETTING)
    assert job.targets["step_s"] == pytest.approx(0.15)
    assert job.worker_cpu_s == pytest.approx(0.075)
    assert job.server_cpu_s == pytest.approx(0.1)  # two servers in one run
    assert (job.link_bytes_per_s, job.lab, job.together) == (1.2e8, True, (("ps:0",), ("worker:0",)))


@pytest.mark.parametrize("rows", [[], [row(step_s=None)], [row(provenance="simulated")]])
def test_rows_without_a_step_time(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInput, match="no measured row with a step time"):
        jobs_of(rows, SETTING)


def test_too_few_rows() -> None:
    with pytest.raises(BadInput, match="too few to fit all parameters"):
        fit_rows([], source="test", date=TODAY)
    with pytest.raises(BadInput, match="no measured job"):
        fit_speed([], device_file(rates(), "", TODAY), device_file(rates(), "", TODAY), source="", date=TODAY)


@pytest.mark.parametrize(
    ("setting", "message"),
    [("cpu-p3w3-1g", "no such dataset"), ("v100-p1w2-pcie", "rows of cpu settings"), ("nonsense", "setting")],
)
def test_bad_settings_are_one_line(setting: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_rows.main([str(ROOT / "datasets"), "--setting", setting]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0]


def test_every_measured_workload_has_a_stored_step() -> None:
    steps = StepFile(ROOT / "datasets" / "steps" / "lab.parquet")
    for setting in map(Setting.parse, ("cpu-p1w2-1g", "cpu-p2w2-1g", "cpu-p1w1-1g")):
        jobs = read_jobs(ROOT / "datasets", setting)
        assert len(jobs) == 162
        found = [steps.step(job.workload, setting) for job in jobs]
        assert {one.server for each in found for one in each.pulls} == set(range(setting.servers))
    assert set(work_of([step()])) >= {0.0, 8.0}


def test_the_shipped_files_simulate_a_measured_workload() -> None:
    jobs = {one.workload: one for one in read_jobs(ROOT / "datasets", SETTING)}
    workload = Workload("resnet20", "cifar10", 32, image_size=32)
    found = simulate_workload(workload, SETTING).metrics("worker:0", hz=200.0)
    assert found["step_s"] == pytest.approx(jobs[workload].targets["step_s"], rel=0.3)
    assert found["net_rx_burst_s"] is not None and found["gpu_mem_burst_s"] is None
