"""Finds the device, host and fabric files of a setting: in the folder of the user, then among those of driple."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.device import CPU, FABRIC, GPU, SUFFIX, DeviceFile, read_device
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import WINDOW, TrainingStep
from driple.simulator.host_model import HostModel, host_model
from driple.simulator.op_costs import op_costs

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


def parameters(setting: Setting) -> Parameters:
    """The files of a setting. Raises BadInput if there is no device file, or one is not complete."""
    device_path = find("devices", setting.device)
    if device_path is None:
        raise BadInput(f"{setting}: {no_device(setting)}")
    device = read_device(device_path)
    if device.kind not in (GPU, CPU):
        raise BadInput(f"{device_path}: kind: expected gpu or cpu, got {device.kind}")
    if device.name != device_path.stem:
        raise BadInput(
            f"{device_path}: name: expected {device_path.stem}, the name of the file, got {shown(device.name)};"
            " rename one of them"
        )
    try:
        op_costs(_NO_OPS, device)
    except BadInput as error:
        raise BadInput(f"{device_path}: {error}") from None
    host_path = find("hosts", f"{setting.device}{HOST_SUFFIX}") or find("hosts", HOST_OF_KIND[device.kind])
    if host_path is None:
        raise BadInput(
            f"{setting}: no host file {setting.device}{HOST_SUFFIX}{SUFFIX} beside {device_path};"
            f" driple-calibrate --name {setting.device} writes both"
        )
    host_file = read_device(host_path)
    try:
        host = host_model(host_file)
    except BadInput as error:
        raise BadInput(f"{host_path}: {error}") from None
    hashes = {f"device {device.name}": device.sha256, f"host {host_file.name}": host_file.sha256}
    link = None
    if setting.link_mbit is not None:
        fabric_path = find("fabrics", setting.network)
        if fabric_path is None:
            link = setting.link_mbit * 1e6 / 8 * GOODPUT
        else:
            fabric = read_device(fabric_path)
            if fabric.kind != FABRIC:
                raise BadInput(f"{fabric_path}: kind: expected {FABRIC}, got {fabric.kind}")
            link = _rate(fabric, fabric_path)
            hashes[f"fabric {fabric.name}"] = fabric.sha256
    return Parameters(device, host, link, hashes, device_path)


def _rate(fabric: DeviceFile, path: Path) -> float:
    try:
        found = fabric.value(LINK)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if found <= 0:
        raise BadInput(
            f"{path}: parameters.{LINK}.value: expected more than 0, got {found:g}; give the payload rate, or"
            " remove the file"
        )
    return found


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
    return tuple(sorted(name for name in names if not name.endswith(HOST_SUFFIX)))


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
