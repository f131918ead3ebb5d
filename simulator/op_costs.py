"""Time of every op of a training step on one device.

An op keeps the device busy for (k: its kind, F and B: the device's peak and bandwidth)

    busy = executions * (launch[k] + tiled_flops * flop_cost[k] / F + bytes * byte_cost[k] / B)

On a GPU the last two terms together are at least bytes / B: nothing moves bytes faster. The framework's thread hands
ops to the device one by one, which costs `dispatch_s` each. The device works through them in their order, so op i ends
at

    end[i] = max(end[i - 1], dispatched[i]) + busy[i],    dispatched[i] = dispatch[0] + ... + dispatch[i]

and its wall time is end[i] - end[i - 1]: a step takes the longer of both, and a little more where they alternate.
Device memory is accessed for

    memory = min(busy, executions * bytes * max(byte_cost[k], memory_cost[k]) / B)

which is the part of the op's time that grows with its bytes: NVML counts the time in which memory is read or written,
however slowly. A byte takes at least `memory_cost`, as it does where nothing but copying is done.

A kind that the file lacks has the cost of its class, else that of `other`. A processor has the same formula; a file of
the kind `cpu` usually has no `dispatch_s`, as its ops are their own dispatch. `launch_s.free` is its time for an op
that only names or orders tensors, which otherwise takes none. Its `speed` divides all times, and the processor seconds
of its host file: that of a like machine which is faster or slower as a whole. `narrow_channels` is the constant of
narrow_layers.py.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU, GPU, DeviceFile, Parameter
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.narrow_layers import narrow_factor
from driple.simulator.op_kinds import CLASS_OF_KIND, FREE, KINDS, kind_numbers, tiled_flops

PEAK = "peak_flops_per_s"
BANDWIDTH = "memory_bytes_per_s"
DISPATCH = "dispatch_s"
FREE_DISPATCH = "dispatch_s.free"
SPEED = "speed"
NARROW = "narrow_channels"
TILE_IN = "tile_channels.inputs"
TILE_OUT = "tile_channels.outputs"
FLOP_COST = "flop_cost"
BYTE_COST = "byte_cost"
LAUNCH = "launch_s"
MEMORY_COST = "memory_cost"
GROUPS = (FLOP_COST, BYTE_COST, LAUNCH, MEMORY_COST)
"""Parameters by kind: `<group>.<kind>`."""

_LAST = {FLOP_COST: "other", BYTE_COST: "other", LAUNCH: "default", MEMORY_COST: "default"}


class OpCosts(NamedTuple):
    """Seconds of each op, of all its executions in a step."""

    wall_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]
    """Of the wall time, how long the device executes it."""
    memory_s: NDArray[np.float64]
    """Of the busy time, how long device memory is read or written: what NVML reports as `memory`."""


def op_costs(step: TrainingStep, device: DeviceFile) -> OpCosts:
    """The costs of the ops of a step by the formulas above.

    Raises:
        BadInput: the device file lacks a parameter, or the graph has no sizes.
    """
    if device.kind not in (GPU, CPU):
        raise BadInput(f"kind: expected {GPU} or {CPU}, got {device.kind}; name a file of a device")
    peak, bandwidth = device.value(PEAK), device.value(BANDWIDTH)
    flop_cost, byte_cost, launch, memory_cost = _tables(device)
    usual, free = device.get(DISPATCH, 0.0), device.get(FREE_DISPATCH, 0.0)
    kinds, moved = kind_numbers(step), step.read_bytes + step.written_bytes
    if len(kinds) and not (step.flops.any() and moved.any()):
        raise BadInput("the graph has no FLOPs or no shapes, so ops have no times; build it again with TensorFlow")
    flops = tiled_flops(step, device.get(TILE_IN, 0.0), device.get(TILE_OUT, 0.0))
    flops = flops * narrow_factor(step, device.get(NARROW, 0.0))
    # Beside a GPU, the host's ops only pass through the framework's thread.
    runs = step.executions * (step.on_device if device.kind == GPU else 1 / speed_factor(device))
    at_bandwidth = moved / bandwidth
    work = flops * flop_cost[kinds] / peak + at_bandwidth * byte_cost[kinds]
    # The bandwidth of a processor is that of its caches or of its memory, as the fit found; that of a GPU is a limit.
    work = np.maximum(work, at_bandwidth * _EXECUTED[kinds]) if device.kind == GPU else work
    busy = runs * (launch[kinds] + work)
    memory = np.minimum(busy, runs * at_bandwidth * np.maximum(byte_cost, memory_cost)[kinds])
    return OpCosts(_wall(busy, step.executions * np.where(kinds == _FREE, free, usual)), busy, memory)


_FREE = KINDS.index(FREE)
_EXECUTED: NDArray[np.bool_] = np.array([CLASS_OF_KIND[kind] != FREE for kind in KINDS])
"""Whether a device executes ops of a kind."""


def _wall(busy: NDArray[np.float64], dispatch: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time between the ends of consecutive ops. The recursion above, solved: a running maximum of the device's lag."""
    if not dispatch.any():
        return busy
    done = np.cumsum(busy)
    end = done + np.maximum.accumulate(np.cumsum(dispatch) - done + busy)
    return np.diff(end, prepend=0.0)


def _tables(device: DeviceFile) -> tuple[NDArray[np.float64], ...]:
    """For each group the value of every kind."""
    for group, last in _LAST.items():
        device.value(f"{group}.{last}")
    return _tables_of(tuple(tuple(sorted(device.group(group).items())) for group in GROUPS))


@lru_cache(maxsize=64)
def _tables_of(groups: tuple[tuple[tuple[str, float], ...], ...]) -> tuple[NDArray[np.float64], ...]:
    return tuple(_table(group, dict(values)) for group, values in zip(GROUPS, groups, strict=True))


def _table(group: str, known: dict[str, float]) -> NDArray[np.float64]:
    """The value of every kind: its own, else that of its class, else the last resort."""
    last = known[_LAST[group]]
    ordinary = {kind: known.get(kind, known.get(of_class, last)) for kind, of_class in CLASS_OF_KIND.items()}
    return np.array(
        [known.get(kind, 0.0) if CLASS_OF_KIND[kind] == FREE else value for kind, value in ordinary.items()]
    )


def names_of(kind: str) -> Set[str]:
    """Every parameter that a device file of this kind may have."""
    of_kinds = {*CLASS_OF_KIND, *CLASS_OF_KIND.values(), *_LAST.values()}
    names = {PEAK, BANDWIDTH, DISPATCH, FREE_DISPATCH, TILE_IN, TILE_OUT, NARROW}
    return names | {f"{group}.{of}" for group in GROUPS for of in of_kinds} | ({SPEED} if kind == CPU else set())


def speed_factor(device: DeviceFile) -> float:
    """How much faster a processor is than the one that its other parameters were fitted to."""
    return device.get(SPEED, 1.0)


def at_speed(device: DeviceFile, speed: float, arithmetic: float = 1.0) -> DeviceFile:
    """The device of a machine beside the one that the other parameters were fitted to.

    Args:
        device: the file.
        speed: how much faster the machine is as a whole.
        arithmetic: how much faster its arithmetic is beyond that.
    """
    changed = {SPEED: speed, PEAK: device.value(PEAK) * arithmetic}
    old = device.parameters
    known = {name: replace(old[name], value=value) for name, value in changed.items() if name in old}
    new = {name: Parameter(value, "1", "argument", "") for name, value in changed.items() if name not in old}
    return replace(device, parameters={**old, **known, **new})
