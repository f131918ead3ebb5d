"""Conditions on rows: `model=resnet*,batch_size=16..64,flags!=foreign_load`.

Conditions are separated by commas. A row must satisfy all of them; of several with `=` on one column, one is enough.

| value | rows |
|---|---|
| text, with `*` and `?` | of this text; of a list, with such an element |
| a number, or `16..64`, `16..`, `..64` | of this number, or in this range |
| nothing | without a value |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from driple.contracts.errors import BadInput, nearest, shown
from driple.contracts.formats.dataset import ROW_COLUMNS
from driple.pipeline.datasets.dataset_file import Row

_COLUMNS = {column.name: column for column in ROW_COLUMNS}
_CONDITION = re.compile(r"\s*(\w+)\s*(!=|=)\s*(.*?)\s*", re.DOTALL)
_RANGE = ".."

Test = Callable[[Any], bool]


@dataclass(frozen=True)
class Selection:
    """Conditions on rows; without any it takes all of them."""

    wanted: dict[str, tuple[Test, ...]]
    """By column: tests of which a value must pass one."""
    unwanted: tuple[tuple[str, Test], ...]
    """Columns, and tests that their values must not pass."""

    def __bool__(self) -> bool:
        return bool(self.wanted or self.unwanted)

    def takes(self, row: Row) -> bool:
        return all(any(test(row.get(name)) for test in tests) for name, tests in self.wanted.items()) and not any(
            test(row.get(name)) for name, test in self.unwanted
        )

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Selection:
        """From texts such as `model=resnet*,framework=torch`.

        Raises:
            BadInput: not a condition, no such column, or a value that it cannot have.
        """
        wanted: dict[str, tuple[Test, ...]] = {}
        unwanted: list[tuple[str, Test]] = []
        for text in (part for whole in texts for part in whole.split(",")):
            match = _CONDITION.fullmatch(text)
            if match is None:
                raise BadInput(f"--select {shown(text)}: expected COLUMN=VALUE or COLUMN!=VALUE, such as model=resnet*")
            name, sign, value = match.groups()
            if name not in _COLUMNS:
                guess = nearest(name, tuple(_COLUMNS))
                hint = f"did you mean {guess}?" if guess else "docs/reference/file-formats.md lists them"
                raise BadInput(f"--select {shown(text)}: no column {shown(name)}; {hint}")
            test = _test(name, value)
            if sign == "=":
                wanted[name] = (*wanted.get(name, ()), test)
            else:
                unwanted.append((name, test))
        return cls(wanted, tuple(unwanted))


def _test(name: str, value: str) -> Test:
    column = _COLUMNS[name]
    if not value:
        return lambda found: found is None or found == []
    if column.value_type == "text":
        if column.is_list:
            return lambda found: any(fnmatchcase(item, value) for item in found or ())
        return lambda found: found is not None and fnmatchcase(found, value)
    least, greatest = _bounds(name, value)
    return lambda found: found is not None and least <= found <= greatest


def _bounds(name: str, text: str) -> Sequence[float]:
    low, dots, high = text.partition(_RANGE)
    try:
        first = float(low) if low or not dots else float("-inf")
        last = (float(high) if high else float("inf")) if dots else first
    except ValueError:
        raise BadInput(f"--select {name}={text}: expected a number, or a range such as 16..64") from None
    if not first <= last:
        raise BadInput(f"--select {name}={text}: no number is in this range")
    return first, last
