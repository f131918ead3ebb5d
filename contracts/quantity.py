"""Quantities with their unit as a person writes them: `500ms`, `5min`, `100mbit`, `0.5%`."""

from __future__ import annotations

import re
from typing import Dict, Tuple

from driple.contracts.errors import BadInput

DURATION = "duration"
RATE = "rate"
SHARE = "share"
_UNITS: Dict[str, Tuple[Dict[str, float], str]] = {
    DURATION: (
        {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0},
        "a duration with its unit such as '500ms', '60s' or '5min'",
    ),
    RATE: ({"kbit": 0.001, "mbit": 1.0, "gbit": 1000.0}, "a rate with its unit such as '100mbit' or '1gbit'"),
    SHARE: ({"%": 1.0}, "a percentage such as '0.5%'"),
}
_QUANTITY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z%]+)", re.ASCII)


class ExpectedError(BadInput):
    """A value has the wrong type or range; the text is the expected one, like `a positive integer`."""


def quantity(kind: str, value: object) -> float:
    """The value in the base unit of its kind: seconds, Mbit/s, percent. Raises ExpectedError."""
    units, wanted = _UNITS[kind]
    match = _QUANTITY.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ExpectedError(wanted)
    return float(match[1]) * units[match[2]]
