"""Long lists of numbers of a JSON value as arrays beside it, bit for bit, so that the JSON stays readable.

A list of floats becomes `{"$array": name}`. Lists of equal length (points of a kernel, predictions by job) become rows
of one table that all of them share, each distinct row once: `{"$rows": name}`, or `{"$rows": name, "$keys": [...]}` for
a dictionary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput

SHORT = 16
"""A shorter list stays in the JSON."""
ARRAY, ROWS, KEYS = "$array", "$rows", "$keys"

Arrays = dict[str, NDArray[Any]]


def split(value: Any, prefix: str) -> tuple[Any, Arrays]:
    """The value with references in place of its long lists, and the arrays by name."""
    arrays: Arrays = {}
    tables: dict[int, dict[tuple[float, ...], int]] = {}

    def rows(lists: list[list[float]], place: str) -> dict[str, Any]:
        table = tables.setdefault(len(lists[0]), {})
        numbers = [table.setdefault(tuple(row), len(table)) for row in lists]
        arrays[place] = np.asarray([len(lists[0]), *numbers], dtype=np.int64)
        return {ROWS: place}

    def walk(item: Any, place: str) -> Any:
        if isinstance(item, dict):
            if _is_table(list(item.values())):
                return {**rows(list(item.values()), place), KEYS: list(item)}
            return {name: walk(each, f"{place}.{name}") for name, each in item.items()}
        if not isinstance(item, list):
            return item
        if len(item) >= SHORT and _floats(item):
            arrays[place] = np.asarray(item, dtype=np.float64)
            return {ARRAY: place}
        if _is_table(item):
            return rows(item, place)
        return [walk(each, f"{place}.{number}") for number, each in enumerate(item)]

    walked = walk(value, prefix)
    for width, table in tables.items():
        arrays[f"{prefix}.rows.{width}"] = np.asarray(list(table), dtype=np.float64)
    return walked, arrays


def join(value: Any, prefix: str, arrays: Arrays) -> Any:
    """The reverse of `split`.

    Raises:
        BadInput: an array is missing, or does not fit.
    """
    try:
        return _joined(value, prefix, arrays)
    except (KeyError, IndexError, ValueError, TypeError):
        raise BadInput(f"{prefix}: its arrays are missing or do not fit; train it again") from None


def _joined(value: Any, prefix: str, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [_joined(item, prefix, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]].tolist()
    if ROWS in value:
        width, *numbers = arrays[value[ROWS]].tolist()
        found = arrays[f"{prefix}.rows.{width}"][numbers].tolist()
        return dict(zip(value[KEYS], found, strict=True)) if KEYS in value else found
    return {name: _joined(item, prefix, arrays) for name, item in value.items()}


def _floats(items: list[Any]) -> bool:
    return set(map(type, items)) == {float}


def _is_table(items: list[Any]) -> bool:
    if len(items) < SHORT or not all(isinstance(item, list) and item for item in items):
        return False
    return len({len(item) for item in items}) == 1 and all(map(_floats, items))
