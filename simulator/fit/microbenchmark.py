"""A device file from a calibration result: for each kind of op (op_kinds.py) a fit of

    time = launch_s + tiled_flops * flop_cost / peak + bytes * byte_cost / bandwidth

with coefficients of at least 0 and relative errors. Peak and bandwidth are the best rates that were measured. Ops of a
few bytes give the default launch on a processor, and the dispatch on a GPU: there they wait for the framework, so ops
that are not much slower say nothing about the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.calibration_result import CalibrationResult, OpTime
from driple.contracts.formats.device import CPU, GPU, DeviceFile, Parameter
from driple.pipeline.graph.public import COUNTED, WINDOW, TrainingStep, op_flops, window_of
from driple.simulator.fit.nonnegative import mean_error_pct, nonnegative_fit
from driple.simulator.op_costs import (
    BANDWIDTH,
    BYTE_COST,
    DISPATCH,
    FLOP_COST,
    LAUNCH,
    MEMORY_COST,
    PEAK,
    TILE_IN,
    TILE_OUT,
)
from driple.simulator.op_kinds import CLASS_OF_KIND, op_kinds, tiled_flops

TINY_BYTES = 1024
"""An op with fewer bytes takes as long as an op takes by itself."""
DISPATCH_FACTOR = 1.5
"""On a GPU, an op that takes less than this multiple of the dispatch is not used for a fit."""
TILES = (0.0, 4.0, 8.0, 16.0, 32.0)
"""Channels of a tile that are tried; 0 for none."""
_FLOPS_OF_PEAK = "matmul"
_BYTES_OF_RATE = "elementwise"


@dataclass(frozen=True)
class Fit:
    """The parameters of a kind or a class."""

    flop_cost: float
    byte_cost: float
    launch_s: float
    error_pct: float
    points: int


@dataclass(frozen=True)
class KindRow:
    """A line of the table of results."""

    kind: str
    ops: int
    spread_pct: float
    """Median of the ops."""
    error_pct: float
    """Of the fit."""


@dataclass(frozen=True)
class FittedDevice:
    """A device file, and how well it describes the measured ops."""

    file: DeviceFile
    rows: tuple[KindRow, ...]


def fit_device(result: CalibrationResult, name: str) -> FittedDevice:
    """The device file of a result. Raises BadInput if the result lacks the ops that give peak and bandwidth."""
    step = op_step(result.ops)
    times = op_times(result)
    kinds = np.array(op_kinds(step))
    moved = step.read_bytes + step.written_bytes
    tiny = moved < TINY_BYTES
    own_s = float(np.median(times[tiny])) if tiny.any() else 0.0
    used = ~tiny & (times > DISPATCH_FACTOR * own_s) if result.on_gpu else ~tiny
    peak = _best(step.flops, times, used & (kinds == _FLOPS_OF_PEAK), _FLOPS_OF_PEAK)
    rate = _best(moved, times, used & (kinds == _BYTES_OF_RATE), _BYTES_OF_RATE)
    tiles, fits = _best_tiles(step, kinds, moved, times, used, peak, rate)
    rows = [
        KindRow(kind, fit.points, _spread(result.ops, used & (kinds == kind)), fit.error_pct)
        for kind, fit in fits.items()
        if kind in set(kinds[used])
    ]
    values = _parameters(result, fits, peak, rate, tiles, own_s, float(np.mean([row.error_pct for row in rows])))
    file = DeviceFile(name, result.title, GPU if result.on_gpu else CPU, values, _notes(result))
    return FittedDevice(file, tuple(rows))


def op_step(ops: Sequence[OpTime]) -> TrainingStep:
    """The measured ops as a training step, so that they have FLOPs and kinds by the same rules as those of graphs."""
    return TrainingStep(
        ops=tuple(one.op for one in ops),
        flops=np.nan_to_num(np.array([op_flops(one.op, one.inputs, one.outputs) for one in ops])),
        read_bytes=np.array([one.read_bytes for one in ops]),
        written_bytes=np.array([one.written_bytes for one in ops]),
        windows=np.array([window_of(one.op, one.inputs, one.outputs) for one in ops]).reshape(-1, len(WINDOW)),
        executions=np.ones(len(ops)),
        on_device=np.ones(len(ops), dtype=bool),
        pulls=(),
        pushes=(),
    )


def op_times(result: CalibrationResult) -> NDArray[np.float64]:
    """Seconds of each op. With one thread of a processor its processor time, which other work does not change."""
    alone = not result.on_gpu and result.threads == 1
    return np.array([one.processor_s if alone else one.wall_s for one in result.ops])


def _best(amount: NDArray[np.float64], times: NDArray[np.float64], chosen: NDArray[np.bool_], kind: str) -> float:
    """The rate of the largest op of a kind: small ones may be in a cache, and have overhead."""
    if not (amount * chosen).any():
        raise BadInput(f"ops: no {kind} op that is large enough; run driple-calibrate again")
    largest = chosen & (amount >= amount[chosen].max() / 2)
    return float((amount[largest] / times[largest]).max())


def _best_tiles(
    step: TrainingStep,
    kinds: NDArray[np.str_],
    moved: NDArray[np.float64],
    times: NDArray[np.float64],
    used: NDArray[np.bool_],
    peak: float,
    rate: float,
) -> tuple[tuple[float, float], dict[str, Fit]]:
    """The tile sizes with the least error, and the fits of all kinds and classes with them."""
    best: tuple[float, tuple[float, float], dict[str, Fit]] | None = None
    for tile_in in TILES:
        for tile_out in TILES:
            flops = tiled_flops(step, tile_in, tile_out)
            columns = np.stack([flops / peak, moved / rate, np.ones(len(times))], axis=1)
            fits = _fits(kinds, columns, times, used)
            error = sum(fit.error_pct * fit.points for kind, fit in fits.items() if kind in CLASS_OF_KIND)
            if best is None or error < best[0]:
                best = error, (tile_in, tile_out), fits
    assert best is not None
    return best[1], best[2]


def _fits(
    kinds: NDArray[np.str_], columns: NDArray[np.float64], times: NDArray[np.float64], used: NDArray[np.bool_]
) -> dict[str, Fit]:
    """By kind, and by class for the kinds that were not measured."""
    classes = np.array([CLASS_OF_KIND[kind] for kind in kinds])
    found = {}
    for labels in (classes, kinds):
        for label in sorted(set(labels[used].tolist())):
            chosen = used & (labels == label)
            counted = classes[chosen][0] in COUNTED
            part = columns[chosen] * np.array([counted, True, True])
            costs = nonnegative_fit(part, times[chosen])
            error = mean_error_pct(part @ costs, times[chosen])
            flop_cost, byte_cost, launch_s = (float(f"{cost:.4g}") for cost in costs)
            found[label] = Fit(flop_cost, byte_cost, launch_s, error, int(chosen.sum()))
    return found


def _parameters(
    result: CalibrationResult,
    fits: dict[str, Fit],
    peak: float,
    rate: float,
    tiles: tuple[float, float],
    own_s: float,
    error_pct: float,
) -> dict[str, Parameter]:
    source = f"driple-calibrate, {result.framework}"
    measured = {PEAK: (peak, "FLOP/s"), BANDWIDTH: (rate, "B/s")}
    made = {
        name: Parameter(float(f"{value:.4g}"), unit, f"{source}: largest {kind} ops", result.date)
        for (name, (value, unit)), kind in zip(measured.items(), (_FLOPS_OF_PEAK, _BYTES_OF_RATE), strict=True)
    }
    for label, fit in fits.items():
        groups = [(BYTE_COST, fit.byte_cost, "1"), (LAUNCH, fit.launch_s, "s")]
        if CLASS_OF_KIND.get(label, label) in COUNTED:
            groups.append((FLOP_COST, fit.flop_cost, "1"))
        for group, value, unit in groups:
            made[f"{group}.{label}"] = Parameter(
                value, unit, f"{source}: fit, mean error of op times", result.date, fit.points, fit.error_pct
            )
    middle = float(np.median([fit.byte_cost for fit in fits.values()]))
    made[f"{BYTE_COST}.other"] = Parameter(middle, "1", f"{source}: median of all kinds", result.date)
    made[f"{FLOP_COST}.other"] = Parameter(0.0, "1", "assumed: bound by bytes", result.date)
    made[f"{MEMORY_COST}.default"] = Parameter(
        1.0, "1", "assumed: memory is accessed at its measured rate", result.date
    )
    tiny = Parameter(float(f"{own_s:.4g}"), "s", f"{source}: median of ops of a few bytes", result.date)
    made[DISPATCH if result.on_gpu else f"{LAUNCH}.default"] = tiny
    if result.on_gpu:
        launch = min(fit.launch_s for fit in fits.values())
        made[f"{LAUNCH}.default"] = Parameter(launch, "s", f"{source}: least of all kinds", result.date)
    for name, tile in zip((TILE_IN, TILE_OUT), tiles, strict=True):
        if tile:
            made[name] = Parameter(tile, "1", f"{source}: best of {TILES}", result.date, None, round(error_pct, 1))
    return made


def _spread(ops: Sequence[OpTime], chosen: NDArray[np.bool_]) -> float:
    return float(np.median([one.spread_pct for one, own in zip(ops, chosen.tolist(), strict=True) if own]))


def _notes(result: CalibrationResult) -> tuple[str, ...]:
    threads = f"{result.threads} intra-op threads" if result.threads else "the framework's default of threads"
    waited = float(np.median([one.wall_s / one.processor_s for one in result.ops]))
    notes = [f"Measured on {result.device} with {threads}, {result.cores} cores, in {result.seconds:g} s."]
    if result.quick:
        notes.append("Short form of the micro-benchmark: kinds of ops that it lacks have the costs of their class.")
    if result.threads == 1 and not result.on_gpu and waited > 1.1:
        notes.append(f"Other work ran on the machine: ops waited {100 * (waited - 1):.0f} % of their processor time.")
    return tuple(notes)
