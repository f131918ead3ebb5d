"""Finds the device, host, fabric and machine files of a setting: in the folder of the user, then among those of driple.

A GPU is a product, but the device `cpu` is whatever processor a lab has. Where the rows of a setting were measured on
another machine than those behind the device file, a machine file with the name of the setting has its speed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from operator import methodcaller
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput, nearest, shown
from driple.contracts.formats.device import (
    CPU,
    FABRIC,
    GPU,
    HOST,
    MACHINE,
    SUFFIX,
    DeviceFile,
    check_parameters,
    read_device,
)
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import WINDOW, TrainingStep
from driple.simulator.host_model import HostModel, host_model
from driple.simulator.op_costs import SPEED, names_of, op_costs

OWN = "DRIPLE_DEVICES"
"""Environment variable: a folder of your own device files; `./devices` if it is not set."""
HOST_OF_KIND = {GPU: "gpu-server", CPU: "lab-host"}
HOST_SUFFIX = "-host"
"""Ends the name of the host file that belongs to a device."""
LINK = "link_bytes_per_s"
GOODPUT = 0.94
"""Share of an Ethernet link's rate that is TCP payload: 1448 of 1538 bytes on the wire."""

_NO_OPS = TrainingStep(
    ops=(),
    flops=np.zeros(0),
    read_bytes=np.zeros(0),
    written_bytes=np.zeros(0),
    windows=np.zeros((0, len(WINDOW)), dtype=np.int64),
    executions=np.zeros(0),
    on_device=np.zeros(0, dtype=bool),
    pulls=(),
    pushes=(),
)
"""A step whose costs need every parameter of a device: computing them checks the file."""


@dataclass(frozen=True)
class Parameters:
    """Everything that a simulation takes from files."""

    device: DeviceFile
    host: HostModel
    link_bytes_per_s: float | None
    hashes: dict[str, str]
    """SHA-256 of each file, by its kind and name."""
    device_path: Path | None = None
    machine: DeviceFile | None = None
    """Of the setting, if it has one; its speed is in `device`."""
    machine_path: Path | None = None


def parameters(setting: Setting) -> Parameters:
    """The files of a setting. Raises BadInput if there is no device file, or one is not complete."""
    device_path = find("devices", setting.device)
    if device_path is None:
        raise BadInput(f"{setting}: {no_device(setting)}")
    device = read_parameters(device_path, GPU, CPU)
    host_path = find("hosts", f"{setting.device}{HOST_SUFFIX}") or find("hosts", HOST_OF_KIND[device.kind])
    if host_path is None:
        raise BadInput(
            f"{setting}: no host file {setting.device}{HOST_SUFFIX}{SUFFIX} beside {device_path};"
            f" driple-calibrate --name {setting.device} writes both"
        )
    host_file = read_parameters(host_path, HOST)
    host = host_model(host_file)
    if host.uses_processors(device.kind == CPU) and not host.cores:
        raise BadInput(
            f"{host_path}: parameters.cores is missing: tasks use processors, and share them; {host_file.remedy}"
        )
    hashes = {f"device {device.name}": device.sha256, f"host {host_file.name}": host_file.sha256}
    link = None
    if setting.link_mbit is not None:
        fabric_path = find("fabrics", setting.network)
        if fabric_path is None:
            link = setting.link_mbit * 1e6 / 8 * GOODPUT
        else:
            fabric = read_parameters(fabric_path, FABRIC)
            link = fabric.value(LINK)
            hashes[f"fabric {fabric.name}"] = fabric.sha256
    machine_path = _machine_path(setting, device, device_path)
    machine = None if machine_path is None else read_parameters(machine_path, MACHINE)
    if machine is not None:
        speed = machine.parameters[SPEED]
        speed = replace(speed, value=speed.value * device.get(SPEED, 1.0))
        device = replace(device, parameters={**device.parameters, SPEED: speed})
        hashes[f"machine {machine.name}"] = machine.sha256
    return Parameters(device, host, link, hashes, device_path, machine, machine_path)


def _machine_path(setting: Setting, device: DeviceFile, device_path: Path) -> Path | None:
    """A machine of driple is beside a device of driple: the user's own device file is of the user's own machine."""
    path = find("machines", str(setting)) if device.kind == CPU else None
    if path is None or path.parent == _shipped("machines") and device_path.parent != _shipped("devices"):
        return None
    return path


def read_parameters(path: Path, *kinds: str) -> DeviceFile:
    """Reads a file that must be of one of these kinds. Raises BadInput in one line that names it."""
    file = read_device(path)
    try:
        if file.kind not in kinds:
            raise BadInput(f"kind: expected {' or '.join(kinds)}, got {file.kind}; driple-calibrate writes such a file")
        if file.name != path.stem:
            raise BadInput(
                f"name: expected {path.stem}, the name of the file, got {shown(file.name)}; rename one of them"
            )
        check_file(file)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return file


def check_file(file: DeviceFile) -> None:
    """Raises BadInput for a parameter that is missing, unknown, absurd or in another unit."""
    known = _NAMES.get(file.kind) or names_of(file.kind)
    for name in file.parameters:
        if name not in known:
            guess = nearest(name, known)
            hint = f" (did you mean {guess}?)" if guess else ""
            raise BadInput(f"parameters.{name}: unknown{hint}; {file.remedy}")
    check_parameters(file)
    _CHECKS[file.kind](file)


_NAMES = {
    HOST: frozenset(one.name for one in fields(HostModel)),
    FABRIC: frozenset((LINK,)),
    MACHINE: frozenset((SPEED,)),
}
_CHECKS: dict[str, Callable[[DeviceFile], object]] = {
    GPU: partial(op_costs, _NO_OPS),
    CPU: partial(op_costs, _NO_OPS),
    HOST: host_model,
    FABRIC: methodcaller("value", LINK),
    MACHINE: methodcaller("value", SPEED),
}
"""What finds a missing parameter of a file, by its kind."""


def no_device(setting: Setting) -> str | None:
    """Why there are no parameters of a setting's device, and the remedy; None if there is a file."""
    device = setting.device
    if find("devices", device) is not None:
        return None
    return (
        f"no device file of {device} (there are {', '.join(known_devices())}); to make one, run driple-calibrate"
        f" --name {device} --output devices/{device}.json on such a machine"
    )


def find(folder: str, name: str) -> Path | None:
    """The file of that name; None if there is none."""
    own = _own_folder()
    for path in (own / f"{name}{SUFFIX}", _shipped(folder) / f"{name}{SUFFIX}"):
        if path.is_file():
            return path
    return None


def known_devices() -> tuple[str, ...]:
    """Names of devices with a file."""
    own = _own_folder()
    folders = [folder for folder in (own, _shipped("devices")) if folder.is_dir()]
    names = {path.stem for folder in folders for path in folder.glob(f"*{SUFFIX}")}
    return tuple(sorted(name for name in names if "-" not in name))  # those of hosts and machines have one


def _own_folder() -> Path:
    """Raises BadInput if the user named a folder that does not exist; the default one may be missing."""
    named = os.environ.get(OWN)
    if named and not Path(named).is_dir():
        raise BadInput(f"{OWN}={named}: no such folder; name a folder of device files, or unset it")
    return Path(named or "devices")


def shown_path(path: Path) -> str:
    """A path as a user names it: a file of driple without the place where driple is installed."""
    shipped = _shipped("devices").parent
    return str(path.relative_to(shipped.parent) if path.is_relative_to(shipped) else path)


@lru_cache(maxsize=4)
def _shipped(folder: str) -> Path:
    return Path(__file__).resolve().parent / folder
