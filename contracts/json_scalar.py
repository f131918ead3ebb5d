"""Single JSON values, checked strictly: an error says where, what was expected and what was found."""

from __future__ import annotations

import math
from typing import Any

from driple.contracts.errors import BadInput, shown


def expect(kind: Any, value: Any, place: str) -> Any:
    """The value, if it is of that type; an integer does for a float.

    Raises:
        BadInput: it is of another type, or no finite number.
    """
    if kind is float and type(value) in (int, float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadInput(at(place, f"expected a finite number, got {shown(value)}"))
        return number
    if type(value) is not kind:  # bool is an int to isinstance, and never meant as one here
        raise BadInput(at(place, f"expected {kind.__name__}, got {shown(value)}"))
    return value


def at(place: str, message: str) -> str:
    """A message with the place inside the document, if there is one."""
    return f"{place}: {message}" if place else message
