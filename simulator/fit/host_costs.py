"""A host file from a calibration result: what a byte, a tensor and a step cost a worker and a parameter server.

Times of pull, push and update are fitted as

    time = tensors * a + bytes * b,    a and b at least 0, relative errors

On one machine a transfer is a pipeline of both ends, so `b` is that of the slower end. It is taken for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.calibration_result import (
    APPLY,
    ASYNC_STEP,
    PULL,
    PUSH,
    SYNC_STEP,
    TO_DEVICE,
    TO_HOST,
    CalibrationResult,
    TransferTime,
)
from driple.contracts.formats.device import HOST, DeviceFile, Parameter
from driple.simulator.fit.nonnegative import mean_error_pct, nonnegative_fit
from driple.simulator.host_model import UPDATE_TENSORS

NOT_MEASURED = {
    "noise": (0.03, "1", "assumed"),
    "start_phase": (0.0, "1", "assumed: workers start together"),
    "latency_s": (5e-5, "s", "assumed"),
}
"""What one worker cannot show."""
LEAST_S = 1e-12


@dataclass(frozen=True)
class Line:
    """Seconds per tensor and per byte."""

    tensor_s: float
    byte_s: float
    error_pct: float
    points: int


def fit_host(result: CalibrationResult, name: str) -> DeviceFile | None:
    """The host file of a result; None if it has no transfers. Raises BadInput if some are missing."""
    if not result.transfers:
        return None
    source = f"driple-calibrate, {result.framework}, over loopback"
    made: dict[str, Parameter] = {}

    def put(name: str, value: float, unit: str, of: str, *lines: Line) -> None:
        error = fmean(one.error_pct for one in lines) if lines else None
        points = sum(one.points for one in lines) or None
        rounded = float(f"{value:.4g}")
        made[name] = Parameter(
            rounded, unit, f"{source}: {of}", result.date, points, None if error is None else round(error, 1)
        )

    wall = {what: line(result, what, lambda one: one.wall_s) for what in (PULL, PUSH, APPLY)}
    worker = {what: line(result, what, lambda one: one.worker_s) for what in (PULL, PUSH)}
    server = {what: line(result, what, lambda one: one.server_s) for what in (PULL, PUSH, APPLY)}
    pull, push, apply = wall[PULL], wall[PUSH], wall[APPLY]
    put("rpc_s", (pull.tensor_s + push.tensor_s) / 2, "s per tensor and direction", "pull and push", pull, push)
    put("server_send_s_per_byte", pull.byte_s, "s/B", PULL, pull)
    put("server_receive_s_per_byte", push.byte_s, "s/B", PUSH, push)
    put("worker_s_per_byte", min(pull.byte_s, push.byte_s), "s/B", "the faster of pull and push", pull, push)
    put("apply_s_per_byte", apply.byte_s, "s/B", "update by momentum", apply)
    moves = worker[PULL], worker[PUSH]
    put("cpu_worker_s_per_byte", fmean(one.byte_s for one in moves), "s/B", "processor time", *moves)
    put("cpu_worker_s_per_tensor", fmean(one.tensor_s for one in moves), "s", "processor time", *moves)
    moves = server[PULL], server[PUSH]
    put("cpu_server_s_per_byte", fmean(one.byte_s for one in moves), "s/B", "processor time", *moves)
    put("cpu_server_s_per_tensor", fmean(one.tensor_s for one in moves), "s", "processor time", *moves)
    per_tensor = server[APPLY].byte_s / UPDATE_TENSORS["momentum"]
    put("cpu_apply_s_per_byte", per_tensor, "s/B", "processor time of an update by momentum", server[APPLY])
    alone, together = _only(result, ASYNC_STEP), _only(result, SYNC_STEP)
    put("session_s", max(alone.wall_s - 2 * made["rpc_s"].value, 0.0), "s", "a step of one small variable")
    put("barrier_s", max(together.wall_s - alone.wall_s, 0.0), "s", "what a synchronous step takes longer")
    put("cpu_session_s", alone.worker_s, "s", "processor time of a step of one small variable")
    put("cores", result.cores, "1", "processors that a process may use")
    if result.copies:
        ways = {way: [one for one in result.copies if one.way == way] for way in (TO_DEVICE, TO_HOST)}
        rates = [max(one.bytes / one.wall_s for one in found) for found in ways.values() if found]
        put("pcie_bytes_per_s", min(rates), "B/s", "copies of a large tensor, the slower direction")
    for assumed, (value, unit, why) in NOT_MEASURED.items():
        made[assumed] = Parameter(value, unit, why, result.date)
    return DeviceFile(name, f"TensorFlow's gRPC runtime on {result.title}", HOST, made)


def line(result: CalibrationResult, what: str, of: Callable[[TransferTime], float]) -> Line:
    """The fit of one kind of transfer. Raises BadInput if there are fewer than two."""
    found = [one for one in result.transfers if one.what == what]
    if len(found) < 2:
        raise BadInput(f"transfers: expected two or more of {what!r}, got {len(found)}; run driple-calibrate again")
    columns = np.array([[one.tensors, one.bytes] for one in found], dtype=np.float64)
    times = np.array([max(of(one), LEAST_S) for one in found])
    tensor_s, byte_s = nonnegative_fit(columns, times).tolist()
    return Line(tensor_s, byte_s, mean_error_pct(columns @ [tensor_s, byte_s], times), len(found))


def _only(result: CalibrationResult, what: str) -> TransferTime:
    for one in result.transfers:
        if one.what == what:
            return one
    raise BadInput(f"transfers: {what!r} is missing; run driple-calibrate again")
