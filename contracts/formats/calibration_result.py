"""Format of a calibration result: what the micro-benchmark measured on a machine (workloads/microbench).

    {"schema": "calibration", "schema_version": 1, "device": "cpu", "threads": 1, ..., "ops": [...], "transfers": [...]}

It holds times only. The simulator fits the parameters of a device file to them (simulator/fit/microbenchmark.py).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Tuple

from driple.contracts.errors import BadInput, shown
from driple.contracts.json_values import from_plain, read_json_file, to_plain
from driple.contracts.run_dir import replacing

SCHEMA = "calibration"
SCHEMA_VERSION = 1

CPU_DEVICE = "cpu"
GPU_DEVICE = "gpu:"
"""Begins the name of a GPU: `gpu:0`."""

PULL = "pull"
PUSH = "push"
APPLY = "apply"
ASYNC_STEP = "async step"
SYNC_STEP = "sync step"
TRANSFERS: Tuple[str, ...] = (PULL, PUSH, APPLY, ASYNC_STEP, SYNC_STEP)
"""What a worker and a parameter server on this machine did: variables to the worker, gradients to the server, an update
by momentum on the server, and whole steps of next to no bytes."""

TO_DEVICE = "to device"
TO_HOST = "to host"
COPIES: Tuple[str, ...] = (TO_DEVICE, TO_HOST)

LONGEST_S = 3600.0


@dataclass(frozen=True)
class OpTime:
    """Medians of one execution of an op."""

    op: str  # type, as in graphs
    inputs: Tuple[Tuple[int, ...], ...]  # shapes
    outputs: Tuple[Tuple[int, ...], ...]
    read_bytes: float
    written_bytes: float
    wall_s: float
    processor_s: float  # of all threads; on an idle machine with one thread equal to wall_s
    spread_pct: float  # range of the middle half of the repeats, in percent of the median
    repeats: int


@dataclass(frozen=True)
class TransferTime:
    """Medians of one execution of what a worker and a parameter server do."""

    what: str  # one of TRANSFERS
    tensors: int
    bytes: float
    wall_s: float
    worker_s: float  # processor seconds of the worker
    server_s: float  # processor seconds of the server
    spread_pct: float
    repeats: int


@dataclass(frozen=True)
class CopyTime:
    """Medians of a copy between host and GPU memory."""

    way: str  # one of COPIES
    bytes: float
    wall_s: float
    spread_pct: float
    repeats: int


@dataclass(frozen=True)
class CalibrationResult:
    """Everything that was measured."""

    device: str  # `cpu` or `gpu:<number>`
    title: str  # of the processor or GPU, as the system names it
    threads: int  # intra-op threads; 0 for the default of the framework
    cores: int  # that a process may use
    date: str  # ISO 8601
    framework: str  # name and version
    quick: bool
    seconds: float  # that the measurement took
    ops: Tuple[OpTime, ...]
    transfers: Tuple[TransferTime, ...] = ()
    copies: Tuple[CopyTime, ...] = ()
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith(GPU_DEVICE)


def read_calibration(path: Path) -> CalibrationResult:
    """Reads and checks a file. Raises BadInput in one line with the place of the fault."""
    return read_json_file(path, parse_calibration)


def write_calibration(result: CalibrationResult, path: Path) -> None:
    """Writes a file in one step."""
    with replacing(path) as stream:
        json.dump(to_plain(result), stream, indent=1)
        stream.write("\n")


def parse_calibration(value: Any) -> CalibrationResult:
    """Checks the content of a file. Raises BadInput."""
    version = value.get("schema_version") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or value.get("schema") != SCHEMA or version != SCHEMA_VERSION:
        raise BadInput(f"not a calibration result of schema version {SCHEMA_VERSION}; driple-calibrate writes one")
    found = from_plain(CalibrationResult, value)
    if not found.ops:
        raise BadInput("ops: empty, so there is nothing to fit; run driple-calibrate again")
    walls = {
        "ops": [one.wall_s for one in found.ops],
        "transfers": [one.wall_s for one in found.transfers],
        "copies": [one.wall_s for one in found.copies],
    }
    for name, times in walls.items():
        for number, seconds in enumerate(times):
            if not (math.isfinite(seconds) and 0 < seconds <= LONGEST_S):
                raise BadInput(f"{name}[{number}].wall_s: expected more than 0 s, at most {LONGEST_S:g} s")
    for number, op in enumerate(found.ops):
        if not (math.isfinite(op.processor_s) and 0 < op.processor_s <= LONGEST_S):
            raise BadInput(f"ops[{number}].processor_s: expected more than 0 s, at most {LONGEST_S:g} s")
    for number, transfer in enumerate(found.transfers):
        if transfer.what not in TRANSFERS:
            known = ", ".join(TRANSFERS)
            raise BadInput(f"transfers[{number}].what: expected one of {known}, got {shown(transfer.what)}")
    return found
