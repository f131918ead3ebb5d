"""Strict checks of single JSON values; errors have the place, the expected and the actual value."""

from __future__ import annotations

import math
from typing import Any

from driple.contracts.errors import BadInput, shown


def expect(kind: Any, value: Any, place: str) -> Any:
    """The value, if it has that type and is finite, else BadInput; an integer is accepted as a float."""
    if kind is float and type(value) in (int, float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadInput(at(place, f"expected a finite number, got {shown(value)}"))
        return number
    if type(value) is not kind:  # isinstance would accept a bool as an int
        raise BadInput(at(place, f"expected {kind.__name__}, got {shown(value)}"))
    return value


def at(place: str, message: str) -> str:
    """Prefixes a message with its place in the document, if there is one."""
    return f"{place}: {message}" if place else message
