"""Parameter files: which one is taken, and one line with place and remedy for a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU, FABRIC, HOST, DeviceFile, Parameter
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import WINDOW, TrainingStep, Transfer, read_step
from driple.simulator.parameter_files import GOODPUT, OWN, known_devices, parameters
from driple.simulator.simulation import simulate_workload

SETTING = Setting.parse("mine-p1w1-1g")
COSTS = {"flop_cost.other": 1.0, "byte_cost.other": 1.0, "launch_s.default": 1e-6, "memory_cost.default": 1.0}
DEVICE = {"peak_flops_per_s": 1e11, "memory_bytes_per_s": 1e10, **COSTS}
HOSTED = dict.fromkeys(
    (
        *("rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte", "worker_s_per_byte"),
        *("session_s", "barrier_s", "noise", "start_phase"),
    ),
    0.0,
)


def write(folder: Path, name: str, kind: str, values: dict[str, float]) -> Path:
    path = folder / f"{name}.json"
    given = {key: Parameter(value, "1", "a test", "2026-01-01") for key, value in values.items()}
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
        ({"peak_flops_per_s": None}, "parameters.peak_flops_per_s is missing; driple-calibrate"),
        ({"peak_flops_per_s": 15.7}, "parameters.peak_flops_per_s.value: expected at least 1000, got 15.7; driple-cal"),
        ({"memory_bytes_per_s": -1.0}, "parameters.memory_bytes_per_s.value: expected 0 to 1e.18, got -1; see driple-"),
        ({"launch_s.default": 100.0}, "parameters.launch_s: expected at most 10 s; .*driple-calibrate"),
        ({"dispatch_s": 100.0}, "parameters.dispatch_s.value: expected at most 10 s, got 100; driple-calibrate"),
        ({"byte_cost.other": None}, "parameters.byte_cost.other is missing; driple-calibrate"),
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
        ({**HOSTED, "speed": 1.0}, "parameters.speed: unknown; a host file has rpc_s"),
        ({key: value for key, value in HOSTED.items() if key != "rpc_s"}, "parameters.rpc_s is missing; driple-calib"),
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
    with pytest.raises(BadInput, match=r"mine.json: kind: expected gpu or cpu, got host"):
        parameters(SETTING)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"link_bytes_per_s": 0.0}, "parameters.link_bytes_per_s.value: expected more than 0, got 0; give the payload"),
        ({}, "parameters.link_bytes_per_s is missing"),
    ],
)
def test_a_fabric_without_a_rate_is_refused(folder: Path, values: dict[str, float], message: str) -> None:
    write(folder, "1g", FABRIC, values)
    with pytest.raises(BadInput, match=f"1g.json: {message}"):
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


def test_a_graph_file_without_shapes_of_its_convolutions_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "g.pbtxt"
    path.write_text(
        'node { name: "x" op: "Placeholder" } node { name: "w" op: "Placeholder" }'
        ' node { name: "c" op: "Conv2D" input: "x" input: "w" }'
    )
    with pytest.raises(BadInput, match=r"g.pbtxt: the graph has no shapes of 1 convolutions.*build it"):
        read_step(path)
