"""The fitted numbers of the GPU model, and the device file that they give.

All GPUs share the costs by kind of op: the priors of op_benchmarks.py, times one factor for each group of kinds. A GPU
has its peak by the data sheet, and its bandwidth by the data sheet over one number of its architecture. A framework
has its dispatch time, and one factor on all device times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats.device import GPU, DeviceFile, Parameter
from driple.simulator.fit.gpus import GPUS, PASCAL, TURING, VOLTA
from driple.simulator.fit.op_benchmarks import Affine, Prior
from driple.simulator.op_costs import (
    BANDWIDTH,
    BYTE_COST,
    DISPATCH,
    FLOP_COST,
    FREE_DISPATCH,
    LAUNCH,
    MEMORY_COST,
    PEAK,
)

TENSORFLOW = "tensorflow"
PYTORCH = "pytorch"

DATA_SHEET = "data sheet"
FITTED = "fit of public step times (simulator/fit); error: MAPE leaving models out"


class Fitted(NamedTuple):
    """A number that is fitted: its logarithm is pulled to that of `start`, as if known to within `width`."""

    name: str
    start: float
    width: float


WIDTH = 0.3
"""Of a factor on the time of a group."""
GROUPS: dict[str, tuple[str, ...]] = {
    "conv_1x1": ("conv_fwd_1x1", "conv_dgrad_1x1", "conv_wgrad_1x1"),
    "conv_winograd": tuple(f"conv_{way}_{shape}" for way in ("fwd", "dgrad", "wgrad") for shape in ("3x3", "5x5")),
    "conv_rect": ("conv_fwd_rect", "conv_dgrad_rect", "conv_wgrad_rect"),
    "conv_other": ("conv_fwd_other", "conv_dgrad_other", "conv_wgrad_other"),
    "depthwise": ("depthwise",),
    "matmul": ("matmul",),
    "normalisation": ("normalisation",),
    "by_bytes": ("elementwise", "pooling", "reduction", "movement", "lookup", "update", "other"),
}
"""Kinds whose priors are wrong by one factor."""
HEAVY = tuple(kind for group in list(GROUPS)[:6] for kind in GROUPS[group])
"""Kinds of the libraries' large kernels, which take longer to start."""

NUMBERS: tuple[Fitted, ...] = (
    *(Fitted(group, 1.0, WIDTH) for group in GROUPS),
    Fitted("launch_light_s", 4e-6, 0.5),
    Fitted("launch_heavy_s", 25e-6, 0.5),
    Fitted("dispatch_tensorflow_s", 10e-6, 0.5),
    Fitted("dispatch_pytorch_s", 18e-6, 0.5),
    Fitted("slower_pytorch", 1.0, 0.2),
    # Beside a V100; the starts are the ratios of NeuSight's 3x3 convolutions on a P100 and a T4.
    Fitted(f"bytes_{PASCAL}", 1.6, 0.2),
    Fitted(f"bytes_{TURING}", 1.25, 0.2),
)
NAMES = tuple(one.name for one in NUMBERS)
START: NDArray[np.float64] = np.log([one.start for one in NUMBERS])
WIDTHS: NDArray[np.float64] = np.array([one.width for one in NUMBERS])

FREE_DISPATCH_S = {TENSORFLOW: 2e-6, PYTORCH: 0.0}
"""Of an op that the device does not execute; PyTorch has none."""
MEMORY_SHARE = 1.16
"""Seconds of memory access per byte of an elementwise op, beside the reciprocal of the bandwidth."""


class Origin(NamedTuple):
    """What a file says of its fit."""

    points: int | None = None
    error_pct: float | None = None
    date: str = ""


def named(logs: NDArray[np.float64]) -> dict[str, float]:
    """The numbers by name from their logarithms."""
    return dict(zip(NAMES, np.exp(logs).tolist(), strict=True))


def device_file(
    gpu: str,
    numbers: Mapping[str, float],
    known: Mapping[str, Prior],
    *,
    framework: str = TENSORFLOW,
    beside: Affine | None = None,
    origin: Origin | None = None,
) -> DeviceFile:
    """The file of a GPU.

    Args:
        gpu: its name.
        numbers: the fitted numbers.
        known: the priors.
        framework: whose dispatch and factor the file has.
        beside: the cost of its FLOPs beside a V100's, for a GPU without a measured step.
        origin: of the fit.
    """
    sheet, origin = GPUS[gpu], Origin() if origin is None else origin
    slower = numbers["slower_pytorch"] if framework == PYTORCH else 1.0
    share = 1.0 if sheet.architecture == VOLTA else 1 / numbers[f"bytes_{sheet.architecture}"]
    fitted = f"{FITTED}; {framework}"

    def of_fit(value: float, unit: str, source: str = fitted) -> Parameter:
        return Parameter(value, unit, source, origin.date, origin.points, origin.error_pct)

    def stated(value: float, unit: str, source: str) -> Parameter:
        return Parameter(value, unit, source, origin.date)

    peak = stated(sheet.peak_flops_per_s, "FLOP/s", f"{DATA_SHEET}, FP32 at boost clock")
    if beside is not None:
        note = (
            f"{DATA_SHEET}, FP32 at boost clock, times what it reaches of it beside a V100 in NeuSight's convolutions"
        )
        peak = stated(sheet.peak_flops_per_s / beside.flop_cost, "FLOP/s", note)
    width = f"{DATA_SHEET}: {sheet.memory_bytes_per_s / 1e9:g} GB/s; share of {sheet.architecture} beside Volta: "
    found = {
        PEAK: peak,
        BANDWIDTH: of_fit(sheet.memory_bytes_per_s * share, "B/s", f"{width}{FITTED}")
        if share != 1.0
        else stated(sheet.memory_bytes_per_s, "B/s", DATA_SHEET),
        DISPATCH: of_fit(numbers[f"dispatch_{framework}_s"], "s"),
        FREE_DISPATCH: stated(FREE_DISPATCH_S[framework], "s", "assumed"),
        f"{LAUNCH}.default": of_fit(numbers["launch_light_s"], "s"),
        f"{MEMORY_COST}.default": stated(MEMORY_SHARE, "1", "NeuSight's elementwise ops reach 86 % of the bandwidth"),
    }
    found |= {f"{LAUNCH}.{kind}": of_fit(numbers["launch_heavy_s"], "s") for kind in HEAVY}
    for group, kinds in GROUPS.items():
        for kind in kinds:
            factor, prior = numbers[group] * slower, known[kind]
            source = f"{prior.source}, times {factor:.3g}: {fitted}"
            found[f"{BYTE_COST}.{kind}"] = of_fit(prior.byte_cost * factor, "1", source)
            if prior.flop_cost or kind == "other":
                found[f"{FLOP_COST}.{kind}"] = of_fit(prior.flop_cost * factor, "1", source)
    return DeviceFile(gpu, sheet.title, GPU, found)


def slower_file(name: str, title: str, other: DeviceFile, factor: float, source: str, origin: Origin) -> DeviceFile:
    """The file of a GPU that takes `factor` times as long as another one for everything that it computes or moves."""
    found = dict(other.parameters)
    for speed in (PEAK, BANDWIDTH):
        known = found[speed]
        note = f"that of the {other.name} file over {factor:.3g}: {source}"
        found[speed] = Parameter(known.value / factor, known.unit, note, origin.date, origin.points, origin.error_pct)
    return DeviceFile(name, title, GPU, found)
