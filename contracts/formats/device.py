"""Format of a device, host, fabric or machine file of the simulator: named parameters, each with its unit and origin.

    {"schema": "device", "schema_version": 1, "name": "v100", "title": "NVIDIA Tesla V100 SXM2", "kind": "gpu",
     "parameters": {"peak_flops_per_s": {"value": 1.57e13, "unit": "FLOP/s", "source": "data sheet", "date": "..."}}}

`driple-calibrate` writes such files, the simulator reads them. Which parameters a file needs, and which it may have, is
up to its reader; device_quantities.py has units and ranges.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.device_quantities import check_quantity
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.run_dir import replacing

SCHEMA = "device"
SCHEMA_VERSION = 1
SUFFIX = ".json"

GPU = "gpu"
CPU = "cpu"
HOST = "host"
FABRIC = "fabric"
MACHINE = "machine"
"""The machine on which the rows of a setting were measured, beside that of the device file."""
KINDS: Tuple[str, ...] = (GPU, CPU, HOST, FABRIC, MACHINE)
_REMEDIES: Dict[str, str] = {FABRIC: "correct it, or remove the file: the rate then follows from the setting"}
"""Kinds that driple-calibrate does not write."""


@dataclass(frozen=True)
class Parameter:
    """One number of a device, and where it comes from."""

    value: float
    unit: str
    source: str  # data sheet, publication, or how it was fitted or measured
    date: str  # of the source or of the fit, ISO 8601
    points: Optional[int] = None  # number of measurements behind a fit
    error_pct: Optional[float] = None  # error of the fit, as `source` describes it


@dataclass(frozen=True)
class DeviceFile:
    """The content of a file."""

    name: str
    title: str
    kind: str  # one of KINDS
    parameters: Dict[str, Parameter]
    notes: Tuple[str, ...] = ()
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION
    sha256: str = field(default="", compare=False)  # of the file that was read; not stored

    def value(self, name: str) -> float:
        """A parameter. Raises BadInput if it is missing."""
        if name not in self.parameters:
            raise BadInput(f"parameters.{name} is missing; {self.remedy}")
        return self.parameters[name].value

    def get(self, name: str, default: float) -> float:
        """A parameter, or the default if the file does not have it."""
        found = self.parameters.get(name)
        return default if found is None else found.value

    @property
    def remedy(self) -> str:
        """What to do about a bad parameter."""
        return _REMEDIES.get(self.kind, "correct it, or run driple-calibrate to write a new file")

    def group(self, prefix: str) -> Dict[str, float]:
        """All parameters `<prefix>.<name>` by name."""
        start = prefix + "."
        return {name[len(start) :]: one.value for name, one in self.parameters.items() if name.startswith(start)}

    def write(self, path: Path) -> None:
        value = to_plain(self)
        del value["sha256"]
        with replacing(path) as stream:
            json.dump(value, stream, indent=1, sort_keys=True)
            stream.write("\n")


def read_device(path: Path) -> DeviceFile:
    """Reads a file and checks its form. Raises BadInput in one line with the place of the fault and the remedy."""
    try:
        content = path.read_bytes()
        return parse_device(json.loads(content), hashlib.sha256(content).hexdigest())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; driple-calibrate writes a device file") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path}: not valid JSON (cut short?); driple-calibrate writes a device file") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def parse_device(value: Any, sha256: str = "") -> DeviceFile:
    """Checks the form of a file. Raises BadInput."""
    version = value.get("schema_version") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or value.get("schema") != SCHEMA or version != SCHEMA_VERSION:
        raise BadInput(f"not a device file of schema version {SCHEMA_VERSION}; driple-calibrate writes one")
    if "sha256" in value:
        raise BadInput("sha256: unknown key")
    found = from_plain(DeviceFile, {**value, "sha256": sha256})
    if found.kind not in KINDS:
        raise BadInput(f"kind: expected one of {', '.join(KINDS)}, got {shown(found.kind)}")
    return found


def check_parameters(file: DeviceFile) -> None:
    """Raises BadInput for a parameter in another unit, or with a value that no machine has; with the remedy."""
    for name, one in file.parameters.items():
        try:
            check_quantity(name, one.value, one.unit)
        except BadInput as error:
            raise BadInput(f"{error}; {file.remedy}") from None
