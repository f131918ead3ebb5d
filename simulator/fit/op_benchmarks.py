"""What benchmarks of single ops say: the priors of the fit.

The time of an op is `launch + flops * flop_cost / peak + bytes * byte_cost / bandwidth`, with one value for each kind.
DeepBench measured all three directions of convolutions on a V100. It covers narrow layers as well: the transforms of a
Winograd convolution move each byte several times, so a layer with few channels is bound by memory.

NeuSight measured the same 3x3 convolutions on several GPUs. The ratios of their costs say how much of its data sheet an
architecture reaches beside a V100.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from driple.contracts.errors import BadInput
from driple.simulator.fit.gpus import GPUS, Gpu

CONVOLUTIONS = "op_conv_deepbench_v100.csv"
PRODUCTS = "op_gemm_deepbench_v100.csv"
OTHER_GPUS = "op_conv_neusight.csv.gz"
REFERENCE = "v100"
DEEPBENCH = "fit of DeepBench's V100 results (github baidu-research/DeepBench, Apache-2.0)"
NEUSIGHT = "share of bandwidth in NeuSight's V100 op times (github sitar-lab/NeuSight, MIT)"
ASSUMED = "assumed: between copies and softmax"

FEWEST_CHANNELS = 8
"""Layers with fewer channels read images or sound; they are a small part of a step."""
SMALLEST_ERROR = 0.05
"""Ops that are this near count alike."""
TURNS = 30
WINOGRAD_5X5 = (8 / 4) ** 2 / 25 / ((6 / 4) ** 2 / 9)
"""Multiplications for each FLOP in tiles of 4x4 outputs: (4 + k - 1)^2 / (4^2 k^2), of k = 5 beside k = 3."""

LEAST_FLOP_COST = {"3x3": (6 / 4) ** 2 / 9}
"""By window: no algorithm needs fewer multiplications for each FLOP. Winograd's in tiles of 4x4 outputs does a quarter;
all other kinds need one. Without this, the fit of layers that are bound by bytes says nothing about large ones."""

_DIRECTION = {"conv_fwd": "fwd", "conv_bwd_input": "dgrad", "conv_bwd_filter": "wgrad"}


class Prior(NamedTuple):
    """What the time of a kind of op is taken to be before the fit."""

    flop_cost: float
    byte_cost: float
    source: str
    points: int | None = None
    error_pct: float | None = None


# Not convolutions: costs by bytes, as the reciprocal of the share of the bandwidth.
_BY_BYTES = {
    "elementwise": Prior(0.0, 1 / 0.87, NEUSIGHT + ": add, relu, gelu"),
    "reduction": Prior(0.0, 1 / 0.61, NEUSIGHT + ": softmax"),
    "normalisation": Prior(0.0, 1 / 0.55, NEUSIGHT + ": layer normalisation"),
    "pooling": Prior(0.0, 1.5, ASSUMED),
    "movement": Prior(0.0, 1.3, ASSUMED),
    "lookup": Prior(0.0, 2.0, ASSUMED),
    "update": Prior(0.0, 1 / 0.87, NEUSIGHT + ": add, relu, gelu"),
    "other": Prior(0.0, 1.5, ASSUMED),
    # Kernels with a window but without reuse of channels: a quarter of the peak, half of the bandwidth.
    "depthwise": Prior(4.0, 2.0, "assumed: no tiles over channels"),
}


class Timed(NamedTuple):
    """One measured op."""

    kind: str
    flops: float
    bytes: float
    seconds: float


class Affine(NamedTuple):
    """Coefficients of the time of a kind of op."""

    launch_s: float
    flop_cost: float
    byte_cost: float
    error_pct: float


def priors(data: Path) -> dict[str, Prior]:
    """The prior of every kind of op. Raises BadInput."""
    found = dict(_BY_BYTES)
    ops = _deepbench(data / CONVOLUTIONS) + _products(data / PRODUCTS)
    for kind in sorted({op.kind for op in ops}):
        own = [op for op in ops if op.kind == kind]
        fitted = affine(own, GPUS[REFERENCE], LEAST_FLOP_COST.get(kind.rpartition("_")[2], 1.0))
        found[kind] = Prior(fitted.flop_cost, fitted.byte_cost, DEEPBENCH, len(own), fitted.error_pct)
    for way in _DIRECTION.values():
        small, other = found[f"conv_{way}_3x3"], found[f"conv_{way}_other"]
        note = "; 5x5: as 3x3 with the fewer multiplications of its Winograd transform"
        found[f"conv_{way}_5x5"] = small._replace(flop_cost=small.flop_cost * WINOGRAD_5X5, source=small.source + note)
        found[f"conv_{way}_rect"] = other._replace(source=other.source + "; as layers with a stride")
    return found


def beside_reference(data: Path, gpu: str) -> Affine | None:
    """How much higher a GPU's cost of FLOPs and bytes is than a V100's, in the same convolutions; None if unknown."""
    ops = _neusight(data / OTHER_GPUS)
    if gpu not in ops or REFERENCE not in ops:
        return None
    own, reference = (affine(ops[name], GPUS[name]) for name in (gpu, REFERENCE))
    return Affine(
        own.launch_s / max(reference.launch_s, 1e-9),
        own.flop_cost / reference.flop_cost,
        own.byte_cost / reference.byte_cost,
        own.error_pct,
    )


def affine(ops: Sequence[Timed], gpu: Gpu, least_flop_cost: float = 0.0) -> Affine:
    """Non-negative coefficients that make relative errors small, the median rather than the mean."""
    seconds = np.array([op.seconds for op in ops])
    columns = [
        np.full(len(ops), 1e-5),
        np.array([op.flops for op in ops]) / gpu.peak_flops_per_s,
        np.array([op.bytes for op in ops]) / gpu.memory_bytes_per_s,
    ]
    rates: NDArray[np.float64] = np.stack(columns, axis=1) / seconds[:, None]
    weight: NDArray[np.float64] = np.ones(len(ops))
    least = np.array([0.0, least_flop_cost, 0.0])
    for _ in range(TURNS):
        above, _ = nnls(rates * weight[:, None], weight * (1 - rates @ least))
        found = least + above
        error = np.abs(np.log(np.maximum(rates @ found, 1e-9)))
        weight = 1 / np.sqrt(np.maximum(error, SMALLEST_ERROR))
    return Affine(found[0] * 1e-5, float(found[1]), float(found[2]), 100 * float(np.median(error)))


def _deepbench(path: Path) -> list[Timed]:
    found = []
    for row in table(path, ("op", "kk", "stride", "Input_Channel", "Output_Channel", "flops", "byts", "s")):
        if min(float(row["Input_Channel"]), float(row["Output_Channel"])) >= FEWEST_CHANNELS:
            window, stride = float(row["kk"]), int(row["stride"])
            shape = "1x1" if window == 1 else "other" if stride > 1 else "3x3" if window == 9 else "5x5"
            kind = f"conv_{_DIRECTION[row['op']]}_{shape}"
            found.append(Timed(kind, float(row["flops"]), float(row["byts"]), float(row["s"])))
    return [op for op in found if not op.kind.endswith("5x5")]  # three points


def _products(path: Path) -> list[Timed]:
    found = []
    for row in table(path, ("M", "N", "K", "ms", "flops")):
        m, n, k = (float(row[name]) for name in "MNK")
        found.append(Timed("matmul", float(row["flops"]), 4 * (m * n + n * k + m * k), float(row["ms"]) / 1e3))
    return found


def _neusight(path: Path) -> dict[str, list[Timed]]:
    found: dict[str, list[Timed]] = {}
    for row in table(path, ("gpu", "op", "Input_Channel", "Output_Channel", "flops", "byts", "s")):
        if min(float(row["Input_Channel"]), float(row["Output_Channel"])) >= FEWEST_CHANNELS:
            timed = Timed(row["op"], float(row["flops"]), float(row["byts"]), float(row["s"]))
            found.setdefault(row["gpu"], []).append(timed)
    return found


def table(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a CSV file that may be compressed. Raises BadInput if it lacks a column."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise BadInput(f"{path}: no column {missing[0]}; expected the table of public measurements")
            return list(reader)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}; name the folder of the public measurements") from None
