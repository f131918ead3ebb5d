"""Parameter files: which one is taken, and one line with place and remedy for a bad one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU, FABRIC, GPU, HOST, MACHINE, DeviceFile, Parameter
from driple.contracts.formats.device_quantities import quantity
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import STRATEGIES
from driple.pipeline.graph.public import WINDOW, TrainingStep, Transfer, read_step, stored_step
from driple.simulator.parameter_files import GOODPUT, OWN, known_devices, parameters
from driple.simulator.simulation import simulate_workload

SETTING = Setting.parse("mine-p1w1-1g")
COSTS = {"flop_cost.other": 1.0, "byte_cost.other": 1.0, "launch_s.default": 1e-6, "memory_cost.default": 1.0}
DEVICE = {"peak_flops_per_s": 1e11, "memory_bytes_per_s": 1e10, **COSTS}
HOSTED = {
    **dict.fromkeys(
        (
            *("rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte", "worker_s_per_byte"),
            *("session_s", "barrier_s", "noise", "start_phase"),
        ),
        0.0,
    ),
    "cores": 4.0,
}


def write(folder: Path, name: str, kind: str, values: dict[str, float]) -> Path:
    path = folder / f"{name}.json"
    given = {key: Parameter(value, quantity(key).unit, "a test", "2026-01-01") for key, value in values.items()}
    DeviceFile(name, name, kind, given).write(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(OWN, str(tmp_path))
    write(tmp_path, "mine", CPU, DEVICE)
    write(tmp_path, "mine-host", HOST, HOSTED)
    return tmp_path


def test_own_files_are_found_and_named(folder: Path) -> None:
    found = parameters(SETTING)
    assert (found.device.name, found.host.rpc_s) == ("mine", 0.0)
    assert set(found.hashes) == {"device mine", "host mine-host", "fabric 1g"}
    assert "mine" in known_devices() and "mine-host" not in known_devices()


def test_an_own_file_comes_before_a_shipped_one(folder: Path) -> None:
    write(folder, "v100", CPU, DEVICE)
    write(folder, "v100-host", HOST, HOSTED)
    assert parameters(Setting.parse("v100-p1w1-1g")).device.title == "v100"


def test_a_link_without_a_fabric_file_has_the_payload_rate_of_ethernet(folder: Path) -> None:
    assert parameters(Setting.parse("mine-p1w1-200m")).link_bytes_per_s == pytest.approx(25e6 * GOODPUT)
    assert parameters(Setting.parse("mine-p1w1-pcie")).link_bytes_per_s is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak_flops_per_s": None}, "parameters.peak_flops_per_s is missing; .*driple-calibrate"),
        ({"byte_cost.other": None}, "parameters.byte_cost.other is missing; .*driple-calibrate"),
        # In TFLOP/s, GB/s and microseconds.
        ({"peak_flops_per_s": 15.7}, r"parameters.peak_flops_per_s.value: expected 1e.06 to 1e.18 FLOP/s, got 15.7; "),
        ({"memory_bytes_per_s": 900.0}, "parameters.memory_bytes_per_s.value: expected 10000 to 1e.15 B/s, got 900; "),
        ({"launch_s.default": 4.0}, "parameters.launch_s.default.value: expected 0 to 1 s, got 4; "),
        ({"dispatch_s": 10.0}, "parameters.dispatch_s.value: expected 0 to 1 s, got 10; .*driple-calibrate"),
        ({"memory_bytes_per_s": -1.0}, "parameters.memory_bytes_per_s.value: expected .*, got -1; .*driple-calibrate"),
        ({"speed": 0.0}, "parameters.speed.value: expected 0.001 to 1000, got 0; .*driple-calibrate"),
        # Misspelt, of another kind of file, and a kind of op that does not exist.
        ({"memory_byte_per_s": 1e9}, r"parameters.memory_byte_per_s: unknown \(did you mean memory_bytes_per_s\?\); "),
        ({"rpc_s": 1e-3}, "parameters.rpc_s: unknown; .*driple-calibrate"),
        (
            {"flop_cost.conv": 1.0},
            r"parameters.flop_cost.conv: unknown \(did you mean flop_cost.convolution.*driple-calibrate",
        ),
    ],
)
def test_an_absurd_or_missing_parameter_is_named_with_its_file(folder: Path, change: Any, message: str) -> None:
    values = {key: value for key, value in {**DEVICE, **change}.items() if value is not None}
    write(folder, "mine", CPU, values)
    with pytest.raises(BadInput, match=f"mine.json: {message}") as caught:
        parameters(SETTING)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**HOSTED, "speed": 1.0}, "parameters.speed: unknown; .*driple-calibrate"),
        ({key: value for key, value in HOSTED.items() if key != "rpc_s"}, "parameters.rpc_s is missing; .*driple-cal"),
        ({**HOSTED, "worker_s_per_byte": 2.5}, "parameters.worker_s_per_byte.value: expected 0 to 0.001 s/B, got 2.5"),
        ({**HOSTED, "noise": 3.0}, "parameters.noise.value: expected 0 to 1, got 3; .*driple-calibrate"),
        ({**HOSTED, "cores": 0.0}, "parameters.cores.value: expected 0.1 to 100000, got 0; .*driple-calibrate"),
        ({key: value for key, value in HOSTED.items() if key != "cores"}, "parameters.cores is missing: .*driple-cal"),
    ],
)
def test_a_bad_host_file_is_named(folder: Path, values: dict[str, float], message: str) -> None:
    write(folder, "mine-host", HOST, values)
    with pytest.raises(BadInput, match=f"mine-host.json: {message}"):
        parameters(SETTING)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "not a device file"),
        (json.dumps({"schema": "device", "schema_version": 1, "name": "mine"}), "driple|missing"),
    ],
)
def test_a_file_that_is_none_is_named(folder: Path, text: str, message: str) -> None:
    (folder / "mine.json").write_text(text)
    with pytest.raises(BadInput, match=f"mine.json: .*{message}"):
        parameters(SETTING)


def test_a_host_file_in_the_place_of_a_device_is_refused(folder: Path) -> None:
    write(folder, "mine", HOST, HOSTED)
    with pytest.raises(BadInput, match=r"mine.json: kind: expected gpu or cpu, got host; driple-calibrate"):
        parameters(SETTING)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"link_bytes_per_s": 0.0},
            "parameters.link_bytes_per_s.value: expected 10000 to .* B/s, got 0; .*remove the f",
        ),
        ({}, "parameters.link_bytes_per_s is missing; correct it, or remove the file"),
        ({"link_bytes_per_s": 1e8, "latency_s": 1e-3}, "parameters.latency_s: unknown; correct it, or remove the file"),
    ],
)
def test_a_fabric_without_a_rate_is_refused(folder: Path, values: dict[str, float], message: str) -> None:
    write(folder, "1g", FABRIC, values)
    with pytest.raises(BadInput, match=f"1g.json: {message}"):
        parameters(SETTING)


@pytest.mark.parametrize(
    ("name", "kind", "parameter", "unit", "expected"),
    [
        ("mine", CPU, "peak_flops_per_s", "TFLOP/s", "FLOP/s"),
        ("mine", CPU, "memory_bytes_per_s", "GB/s", "B/s"),
        ("mine", CPU, "launch_s.default", "us", "s"),
        ("mine", CPU, "flop_cost.other", "", "1"),
        ("mine-host", HOST, "worker_s_per_byte", "ns/B", "s/B"),
        ("mine-host", HOST, "rpc_s", "ms per tensor", "s"),
        ("mine-host", HOST, "cores", "s", "1"),
        ("1g", FABRIC, "link_bytes_per_s", "Gbit/s", "B/s"),
    ],
)
def test_a_parameter_in_another_unit_is_refused(
    folder: Path, name: str, kind: str, parameter: str, unit: str, expected: str
) -> None:
    write(folder, name, kind, {CPU: DEVICE, HOST: HOSTED, FABRIC: {"link_bytes_per_s": 1e8}}[kind])
    path = folder / f"{name}.json"
    content = json.loads(path.read_text())
    content["parameters"][parameter]["unit"] = unit
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput) as caught:
        parameters(SETTING)
    message = str(caught.value)
    assert message.startswith(
        f"{path}: parameters.{parameter}.unit: expected {expected}, got {unit!r}; correct it, or "
    )
    assert "\n" not in message


def test_a_gpu_file_has_no_speed_of_a_processor(folder: Path) -> None:
    write(folder, "mine", GPU, {**DEVICE, "speed": 2.0})
    with pytest.raises(BadInput, match=r"mine.json: parameters.speed: unknown"):
        parameters(SETTING)


def test_a_gpu_server_needs_cores_only_if_tasks_use_processors(folder: Path) -> None:
    without = {name: value for name, value in HOSTED.items() if name != "cores"}
    write(folder, "mine", GPU, DEVICE)
    write(folder, "mine-host", HOST, without)
    assert parameters(SETTING).host.cores == 0.0
    write(folder, "mine-host", HOST, {**without, "cpu_session_s": 1e-3})
    with pytest.raises(BadInput, match=r"mine-host.json: parameters.cores is missing: .*driple-calibrate"):
        parameters(SETTING)


def test_a_machine_file_of_the_setting_has_the_speed_of_its_machine(folder: Path) -> None:
    write(folder, "mine", CPU, {**DEVICE, "speed": 2.0})
    write(folder, str(SETTING), MACHINE, {"speed": 1.5})
    found = parameters(SETTING)
    assert found.device.value("speed") == pytest.approx(3.0)
    assert found.machine_path == folder / f"{SETTING}.json" and set(found.hashes) >= {f"machine {SETTING}"}
    assert parameters(Setting.parse("mine-p1w2-1g")).machine is None
    assert str(SETTING) not in known_devices()
    write(folder, str(SETTING), MACHINE, {})
    with pytest.raises(BadInput, match=r"mine-p1w1-1g.json: parameters.speed is missing; .*driple-calibrate"):
        parameters(SETTING)


def test_a_device_file_has_the_name_of_its_device(folder: Path) -> None:
    (folder / "mine.json").rename(folder / "other.json")
    with pytest.raises(BadInput, match=r"other.json: name: expected other, the name of the file, got 'mine'"):
        parameters(Setting.parse("other-p1w1-1g"))


def test_a_folder_that_the_user_names_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, str(tmp_path / "nowhere"))
    for call in (known_devices, lambda: parameters(Setting.parse("v100-p1w1-1g"))):
        with pytest.raises(BadInput, match=f"{OWN}=.*nowhere: no such folder; name a folder of device files"):
            call()


def test_a_device_without_a_file_is_named_with_the_command_that_makes_one(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"no device file of h100 .*driple-calibrate --name h100 --output devices/h100"):
        parameters(Setting.parse("h100-p1w1-1g"))


def test_a_graph_without_shapes_is_refused_with_its_workload(folder: Path) -> None:
    zeros = np.zeros(1)
    windows: NDArray[np.int64] = np.zeros((1, len(WINDOW)), dtype=np.int64)
    moved = (Transfer(0, 0, 4.0),)
    step = TrainingStep(("MatMul",), zeros, zeros, zeros, windows, np.ones(1), np.ones(1) > 0, moved, moved)
    with pytest.raises(BadInput, match="resnet20-b32-.*: the graph has no FLOPs or no shapes.*build it again"):
        simulate_workload(Workload("resnet20", "cifar10", 32, image_size=32), SETTING, step=step)


def test_a_strategy_without_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, lenet = Setting.parse("v100-p0w2-1g"), Workload("lenet", "imagenet", 32, image_size=28)
    step = stored_step(replace(lenet, strategy="allreduce"), setting)
    assert step is not None
    monkeypatch.setitem(STRATEGIES, "pair_averaging", replace(STRATEGIES["pair_averaging"], has_simulation=False))
    pairs = replace(lenet, strategy="pair_averaging", framework="torch", update="async", backend="gloo")
    with pytest.raises(BadInput, match="lenet.*: strategy pair_averaging cannot be simulated; measure it"):
        simulate_workload(pairs, setting, step=step)


def test_a_graph_file_without_shapes_of_its_convolutions_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "g.pbtxt"
    path.write_text(
        'node { name: "x" op: "Placeholder" } node { name: "w" op: "Placeholder" }'
        ' node { name: "c" op: "Conv2D" input: "x" input: "w" }'
    )
    with pytest.raises(BadInput, match=r"g.pbtxt: the graph has no shapes of 1 convolutions.*build it"):
        read_step(path)
