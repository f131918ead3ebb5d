"""Time of every op of a training step on one device.

An op keeps the device busy for (k: its kind, F and B: the device's peak and bandwidth)

    busy = executions * (launch[k] + tiled_flops * flop_cost[k] / F + bytes * byte_cost[k] / B)

The framework's thread hands ops to the device one by one, which costs `dispatch_s` each. The device works through them
in their order, so op i ends at

    end[i] = max(end[i - 1], dispatched[i]) + busy[i],    dispatched[i] = dispatch[0] + ... + dispatch[i]

and its wall time is end[i] - end[i - 1]: a step takes the longer of both, and a little more where they alternate.
Device memory is accessed for

    memory = min(busy, executions * bytes * memory_cost[k] / B)

A kind that the file lacks has the cost of its class, else that of `other`. A processor has the same formula; a file of
the kind `cpu` usually has no `dispatch_s`, as its ops are their own dispatch. `launch_s.free` is its time for an op
that only names or orders tensors, which otherwise takes none. Its `speed` divides all times, and the processor seconds
of its host file: that of a like machine which is faster or slower as a whole. `narrow_channels` is the constant of
narrow_layers.py.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU, GPU, DeviceFile
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
_LEAST_SPEED = 1e3
"""A device with fewer FLOP/s or bytes/s is a mistake in the unit."""
_LONGEST_S = 10.0
"""As launch or dispatch of one op."""
_REMEDY = "driple-calibrate writes a complete file"


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
        BadInput: the device file lacks a parameter or has an absurd one, or the graph has no sizes.
    """
    peak, bandwidth = _speed(device, PEAK), _speed(device, BANDWIDTH)
    flop_cost, byte_cost, launch, memory_cost = _tables(device)
    usual, free = _seconds(device, DISPATCH), _seconds(device, FREE_DISPATCH)
    kinds, moved = kind_numbers(step), step.read_bytes + step.written_bytes
    if len(kinds) and not (step.flops.any() and moved.any()):
        raise BadInput("the graph has no FLOPs or no shapes, so ops have no times; build it again with TensorFlow")
    flops = tiled_flops(step, device.get(TILE_IN, 0.0), device.get(TILE_OUT, 0.0))
    flops = flops * narrow_factor(step, device.get(NARROW, 0.0))
    # Beside a GPU, the host's ops only pass through the framework's thread.
    runs = step.executions * (step.on_device if device.kind == GPU else 1 / speed_factor(device))
    busy = runs * (launch[kinds] + flops * flop_cost[kinds] / peak + moved * byte_cost[kinds] / bandwidth)
    memory = np.minimum(busy, runs * moved * memory_cost[kinds] / bandwidth)
    return OpCosts(_wall(busy, step.executions * np.where(kinds == _FREE, free, usual)), busy, memory)


_FREE = KINDS.index(FREE)


def _wall(busy: NDArray[np.float64], dispatch: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time between the ends of consecutive ops. The recursion above, solved: a running maximum of the device's lag."""
    if not dispatch.any():
        return busy
    done = np.cumsum(busy)
    end = done + np.maximum.accumulate(np.cumsum(dispatch) - done + busy)
    return np.diff(end, prepend=0.0)


def _tables(device: DeviceFile) -> tuple[NDArray[np.float64], ...]:
    """For each group the value of every kind."""
    return _tables_of(tuple(tuple(sorted(device.group(group).items())) for group in GROUPS), device.kind)


@lru_cache(maxsize=64)
def _tables_of(groups: tuple[tuple[tuple[str, float], ...], ...], kind: str) -> tuple[NDArray[np.float64], ...]:
    return tuple(_table(group, dict(values)) for group, values in zip(GROUPS, groups, strict=True))


def _table(group: str, known: dict[str, float]) -> NDArray[np.float64]:
    """The value of every kind: its own, else that of its class, else the last resort."""
    last = _LAST[group]
    if last not in known:
        raise BadInput(f"parameters.{group}.{last} is missing; {_REMEDY}")
    if group == LAUNCH and max(known.values()) > _LONGEST_S:
        raise BadInput(f"parameters.{group}: expected at most {_LONGEST_S:g} s; correct it, or {_REMEDY}")
    ordinary = {kind: known.get(kind, known.get(of_class, known[last])) for kind, of_class in CLASS_OF_KIND.items()}
    return np.array(
        [known.get(kind, 0.0) if CLASS_OF_KIND[kind] == FREE else value for kind, value in ordinary.items()]
    )


def _speed(device: DeviceFile, name: str) -> float:
    if device.kind not in (GPU, CPU):
        raise BadInput(f"kind: expected {GPU} or {CPU}, got {device.kind}; name a file of a device")
    found = device.value(name)
    if not (math.isfinite(found) and found >= _LEAST_SPEED):
        raise BadInput(f"parameters.{name}.value: expected at least {_LEAST_SPEED:g}, got {found:g}; {_REMEDY}")
    return found


def speed_factor(device: DeviceFile) -> float:
    """How much faster a processor is than the one that its other parameters were fitted to."""
    found = device.get(SPEED, 1.0)
    if not 0.001 <= found <= 1000:
        raise BadInput(f"parameters.{SPEED}.value: expected 0.001 to 1000, got {found:g}; {_REMEDY}")
    return found


def _seconds(device: DeviceFile, name: str) -> float:
    found = device.get(name, 0.0)
    if found > _LONGEST_S:
        raise BadInput(f"parameters.{name}.value: expected at most {_LONGEST_S:g} s, got {found:g}; {_REMEDY}")
    return found
