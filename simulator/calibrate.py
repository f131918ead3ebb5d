"""Calibrates a machine: from the micro-benchmark, or a kept result of it, to a device file and a host file."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.formats.calibration_result import (
    CPU_DEVICE,
    CalibrationResult,
    read_calibration,
    write_calibration,
)
from driple.contracts.formats.device import SUFFIX, DeviceFile
from driple.contracts.setting import Setting
from driple.simulator.fit.host_costs import fit_host
from driple.simulator.fit.microbenchmark import FittedDevice, fit_device
from driple.simulator.parameter_files import HOST_SUFFIX, check_file

_FRAMEWORK_LOG = re.compile(r"[IWEF]\d{4} |WARNING")
"""A line that TensorFlow logs, also after an error."""

Say = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Calibration:
    """The two files of a machine."""

    result: CalibrationResult
    device: FittedDevice
    device_path: Path
    host: DeviceFile | None
    host_path: Path


def host_name(name: str) -> str:
    """The name of the host file that belongs to a device."""
    return f"{name}{HOST_SUFFIX}"


def check_target(name: str, output: Path, force: bool) -> None:
    """Raises BadInput for a name that no setting can have, and for files that exist."""
    try:
        Setting(name, 1, 1, "pcie")
    except BadInput as error:
        raise BadInput(f"--name: {error}") from None
    if output.suffix != SUFFIX:
        raise BadInput(f"--output {output}: expected a file with the suffix {SUFFIX}")
    if output.stem != name:
        raise BadInput(
            f"--output {output}: expected the file name {name}{SUFFIX}: a setting finds it by the device's name"
        )
    if output.is_dir():
        raise BadInput(f"--output {output}: a folder; name a file in it")
    for path in (output, _beside(output, name)):
        if path.exists() and not force:
            raise BadInput(f"{path} exists; --force replaces it, or choose another --output")


def measure(device: str, threads: int | None, quick: bool, say: Say) -> CalibrationResult:
    """Runs the micro-benchmark in a process of its own, which ends with this one.

    Args:
        device: `cpu` or `gpu:<number>`.
        threads: intra-op threads; 0 for TensorFlow's default. None for one thread of a processor, and else the default.
        quick: the short form.
        say: called with the number of parts that are done, of all parts, and the name of the next one.

    Raises:
        BadInput: TensorFlow is not installed, or the machine has no such device.
        RunFailed: the micro-benchmark failed.
    """
    if find_spec("tensorflow") is None:
        raise BadInput("tensorflow is not installed: pip install 'driple[workloads]'")
    threads = int(device == CPU_DEVICE) if threads is None else threads
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as words:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "driple.workloads.cli", "calibrate", "--device", device]
        command += ["--threads", str(threads), "--watch-stdin", "--out", str(out), *(["--quick"] if quick else [])]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                parts, _, name = line.strip().partition(" ")
                done, _, all_of = parts.partition("/")
                if done.isdigit() and all_of.isdigit():
                    say(int(done), int(all_of), name)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        if code:
            words.seek(0)
            lines = [line for line in words.read().splitlines() if line.strip() and not _FRAMEWORK_LOG.match(line)]
            last = (lines or ["no message"])[-1]
            raise (BadInput if code == BadInput.exit_code else RunFailed)(last)
        return read_calibration(out)


def fit(result: CalibrationResult, name: str, output: Path) -> Calibration:
    """Fits both files. Raises BadInput if the result is not complete."""
    device, host = fit_device(result, name), fit_host(result, host_name(name))
    return Calibration(result, device, output, host, _beside(output, name))


def write(found: Calibration, results: Path | None = None) -> None:
    """Writes the files, each in one step, and the result if asked. Raises BadInput if a folder cannot be written."""
    try:
        if results is not None:
            write_calibration(found.result, results)
    except OSError as error:
        raise BadInput(f"{results}: {error.strerror}") from None
    write_files(found.device_path, found.device.file, found.host)


def write_files(path: Path, device: DeviceFile, host: DeviceFile | None) -> tuple[Path, Path]:
    """Writes a device file, and the host file beside it.

    Raises:
        BadInput: the folder cannot be written, or the simulator would refuse a file; then none is written.
    """
    beside = path.with_name(f"{host_name(device.name)}{SUFFIX}")
    for file in (device, *([] if host is None else [host])):
        try:
            check_file(file)
        except BadInput as error:
            raise BadInput(f"the fit of {file.name} failed: {error}") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        device.write(path)
        if host is not None:
            host.write(beside)
    except OSError as error:
        raise BadInput(f"{error.filename or path}: {error.strerror}") from None
    return path, beside


def _beside(output: Path, name: str) -> Path:
    return output.with_name(f"{host_name(name)}{SUFFIX}")
