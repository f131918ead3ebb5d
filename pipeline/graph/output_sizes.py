"""Bytes of an op's outputs, with guesses where the graph has no shape.

- An unknown first dimension counts as the batch size if that is known; any other unknown dimension counts as 1.
- An output of unknown rank counts as 0. So do strings and handles (string, resource, variant).
- An element of unknown type counts as 4 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from driple.contracts.errors import BadInput
from driple.contracts.formats.graph import ELEMENT_BYTES

HANDLES = ("string", "resource", "variant")
UNKNOWN_ELEMENT_BYTES = 4
MAX_BYTES = 2.0**60

Shape = Sequence[int] | None
"""-1 for an unknown dimension, None for an unknown rank."""


def guessed(shape: Sequence[int], batch_size: int | None) -> list[int]:
    """The shape with every unknown dimension replaced by the rule above."""
    first = batch_size or 1
    return [size if size >= 0 else (1 if axis else first) for axis, size in enumerate(shape)]


def output_bytes(shapes: Sequence[Shape], dtypes: Sequence[str | None], batch_size: int | None) -> tuple[float, bool]:
    """The size of all outputs, and whether it is known without a guess. Raises BadInput for an impossible size."""
    total, known = 0.0, True
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if dtype in HANDLES:
            continue
        if shape is None:
            known = False
            continue
        element = ELEMENT_BYTES.get(dtype or "")
        known = known and element is not None and all(size >= 0 for size in shape)
        total += math.prod(map(float, guessed(shape, batch_size))) * (element or UNKNOWN_ELEMENT_BYTES)
    if not total < MAX_BYTES:
        raise BadInput("an op whose outputs take more bytes than any machine has")
    return total, known
