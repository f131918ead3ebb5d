"""What the number of a parameter of a device file means: its unit, and the values that it can have.

The end of a parameter's name says its unit, before the kind of op if there is one: `launch_s.matmul` is in seconds,
`pcie_bytes_per_s` in bytes per second. A name without such an end is a plain number, such as a factor or a count.
"""

from __future__ import annotations

import math
from typing import Dict, NamedTuple, Tuple

from driple.contracts.errors import BadInput, shown


class Quantity(NamedTuple):
    """A unit and a range, ends included."""

    unit: str
    least: float
    most: float


PLAIN = Quantity("1", 0.0, 1e5)
BY_END: Tuple[Tuple[str, Quantity], ...] = (
    ("_flops_per_s", Quantity("FLOP/s", 1e6, 1e18)),
    ("_bytes_per_s", Quantity("B/s", 1e4, 1e15)),
    ("_s_per_byte", Quantity("s/B", 0.0, 1e-3)),
    ("_s_per_tensor", Quantity("s", 0.0, 1.0)),
    ("_s", Quantity("s", 0.0, 1.0)),
)
"""By the end of a name, the first that fits. Wider than any machine: a value outside is one in another unit."""
BY_NAME: Dict[str, Quantity] = {
    "pcie_bytes_per_s": Quantity("B/s", 0.0, 1e15),  # 0: no limit
    "nccl_bytes_per_s": Quantity("B/s", 0.0, 1e15),  # 0: that of a copy
    "speed": Quantity("1", 1e-3, 1e3),
    "noise": Quantity("1", 0.0, 1.0),
    "start_phase": Quantity("1", 0.0, 1.0),
    "cores": Quantity("1", 0.1, 1e5),
    "parallel": Quantity("1", 0.1, 1e5),
    "memory_cost": Quantity("1", 0.0, 100.0),
}
"""Exceptions."""
_PER = " per tensor"
"""A time may be written as one `per tensor`, or `per tensor and direction`."""
_COUNTED = ("processors", "channels")
"""Words that a plain number may have as its unit."""


def quantity(name: str) -> Quantity:
    """What a parameter is, by its name."""
    base = name.partition(".")[0]
    ends = (found for end, found in BY_END if base.endswith(end))
    return BY_NAME.get(base) or next(ends, PLAIN)


def check_quantity(name: str, value: float, unit: str) -> None:
    """Raises BadInput, without a remedy, for another unit or a value that no machine has."""
    wanted = quantity(name)
    given = PLAIN.unit if unit in _COUNTED else unit.partition(_PER)[0]
    if given != wanted.unit:
        raise BadInput(f"parameters.{name}.unit: expected {wanted.unit}, got {shown(unit)}")
    if not math.isfinite(value) or not wanted.least <= value <= wanted.most:
        of = "" if wanted.unit == PLAIN.unit else f" {wanted.unit}"
        raise BadInput(f"parameters.{name}.value: expected {wanted.least:g} to {wanted.most:g}{of}, got {value:g}")
