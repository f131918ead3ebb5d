"""Calibrates a machine from runs that were measured on it: the rows of a dataset in place of a micro-benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import DeviceFile, read_device
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.setting import Setting
from driple.simulator.fit.fit_rows import DEVICE, HOST, LEAST_ROWS, fit_rows, fit_speed, replays_of
from driple.simulator.fit.measured_jobs import read_jobs
from driple.simulator.fit.step_source import StepFile
from driple.simulator.parameter_files import HOST_SUFFIX, find

Say = Callable[[str], None]


def calibrate_from_rows(
    datasets: Path, setting: Setting, name: str, *, tries: int, say: Say
) -> tuple[DeviceFile, DeviceFile]:
    """The device and host files of the machine on which a dataset was measured.

    With few workloads only the speed is fitted, relative to the machine of the shipped files.

    Args:
        datasets: the folder with the dataset. Training steps that are not stored are built and added to `steps/` there.
        setting: whose rows.
        name: of the device.
        tries: sets of timing constants.
        say: gets lines on the progress.

    Raises:
        BadInput: there is no such dataset, it has no rows of a processor, or a training step cannot be built.
    """
    jobs = read_jobs(datasets, setting)
    replays = replays_of(jobs, StepFile(datasets / STEPS, say))
    source, today = f"fit of {len(jobs)} workloads of {setting}", str(date.today())
    if len(jobs) >= LEAST_ROWS:
        hosted = f"{name}{HOST_SUFFIX}"
        return fit_rows(replays, source=source, date=today, device_name=name, host_name=hosted, tries=tries, say=say)
    paths = find("devices", DEVICE), find("hosts", HOST)
    if paths[0] is None or paths[1] is None:
        raise BadInput(f"{len(jobs)} workloads are too few to fit all parameters; measure {LEAST_ROWS} or more")
    device, host = map(read_device, (paths[0], paths[1]))
    say(f"{len(jobs)} workloads, fewer than {LEAST_ROWS}: only the speed is fitted, relative to {device.title}")
    scaled = fit_speed(replays, device, host, source=source, date=today)
    note = f"Only the speed was fitted, to {len(jobs)} workloads of {setting}."
    return (
        replace(scaled, name=name, title=f"{device.title}, at another speed", notes=(*device.notes, note)),
        replace(host, name=f"{name}{HOST_SUFFIX}"),
    )
