"""Checks the values of a document and collects all faults.

`At` is a value with its place. After a fault, reading continues with a default value, so that one pass reports every
fault of a file.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from driple.contracts.errors import BadInput, Fault, FileFaults, shown, unknown
from driple.contracts.quantity import DURATION, RATE, SHARE, ExpectedError, quantity
from driple.orchestrator.config.yaml_nodes import Node, read_file

T = TypeVar("T")
MAX_FAULTS = 1000


@dataclass
class Faults:
    """The faults of a file and of the files that it names."""

    found: dict[Fault, None] = field(default_factory=dict)
    """In order, each once: an alias or a grid can lead to the same place many times."""

    def add(self, fault: Fault) -> None:
        """Adds a fault; stops at a file with too many."""
        self.found[fault] = None
        if len(self.found) > MAX_FAULTS:
            self.found[Fault(fault.source, None, "", f"more than {MAX_FAULTS} faults; reading ends here")] = None
            self.raise_if_any()

    def raise_if_any(self) -> None:
        if self.found:
            raise FileFaults(sorted(self.found, key=lambda fault: (fault.source, fault.line or 0)))


@dataclass(frozen=True, eq=False)
class At:
    """A value of a document with its place."""

    node: Node
    place: str
    source: str
    faults: Faults

    @property
    def value(self) -> Any:
        return self.node.value

    def fault(self, message: str) -> None:
        self.faults.add(Fault(self.source, self.node.line, self.place, message))

    def one(self, parse: Callable[[Any], T], otherwise: T) -> T:
        """The parsed value; `otherwise` after a fault."""
        if isinstance(self.value, (list, dict)):
            kind = "a list" if isinstance(self.value, list) else "a mapping"
            self.fault(f"expected one value, got {kind}")
            return otherwise
        try:
            return parse(self.value)
        except ExpectedError as error:
            self.fault(f"expected {error}, got {shown(self.value)}")
        except BadInput as error:
            self.fault(str(error))
        return otherwise

    def many(self, parse: Callable[[Any], T]) -> tuple[T, ...]:
        """The parsed values of a list or of one value, without faulty ones."""
        items = self.items() if isinstance(self.value, list) else [self]
        if not items:
            self.fault("expected at least one value, got an empty list")
        failed: Any = object()
        passed: dict[T, None] = {}
        for item in items:
            value = item.one(parse, failed)
            if value in passed:
                item.fault(f"appears twice in this list: {shown(item.value)}")
            elif value is not failed:
                passed[value] = None
        return tuple(passed)

    def items(self) -> list[At]:
        """The entries of a list; none after a fault."""
        if not isinstance(self.value, list):
            self.fault(f"expected a list, got {_kind(self.value)}")
            return []
        return [At(node, f"{self.place}[{i}]", self.source, self.faults) for i, node in enumerate(self.value)]

    def entries(self) -> dict[str, At]:
        """The entries of a mapping with any keys; none after a fault."""
        if not isinstance(self.value, dict):
            self.fault(f"expected a mapping, got {_kind(self.value)}")
            return {}
        prefix = f"{self.place}." if self.place else ""
        return {key: At(node, prefix + key, self.source, self.faults) for key, node in self.value.items()}

    def keys(self, known: Iterable[str], required: Sequence[str] = ()) -> dict[str, At]:
        """The entries of a mapping with known keys; reports unknown and missing ones."""
        names = tuple(known)
        entries = self.entries()
        for key, entry in entries.items():
            if key not in names:
                At(entry.node, self.place, self.source, self.faults).fault(unknown("key", key, names))
        if isinstance(self.value, dict):
            for key in required:
                if key not in entries:
                    self.fault(f"key {key!r} is missing")
        return {key: entry for key, entry in entries.items() if key in names}


def open_document(path: Path, name: str, faults: Faults) -> At | None:
    """The root of a YAML file; None after a fault."""
    try:
        return At(read_file(path, name), "", name, faults)
    except FileFaults as error:
        for fault in error.faults:
            faults.add(fault)
    except BadInput as error:
        text = str(error)
        faults.add(Fault(name, None, "", text[len(name) + 2 :] if text.startswith(f"{name}: ") else text))
    return None


def existing_file(folder: Path, name: str) -> Path:
    """A file that another file names, relative to its folder. Raises BadInput unless it is a regular file."""
    try:
        path = folder / Path(name).expanduser()
        mode = path.stat().st_mode
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~user of nobody
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot read {shown(name, 200)} in {str(folder)!r}: {reason}") from None
    if not stat.S_ISREG(mode):
        raise BadInput(f"{str(path)!r} is not a regular file")
    return path


def _kind(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else shown(value)


# Parsers of scalars. Each raises ExpectedError with the expected value.

LARGEST = 2**31 - 1


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ExpectedError("a text")
    return value


def integer(lowest: int, highest: int = LARGEST) -> Callable[[object], int]:
    """A whole number within limits."""
    if highest == LARGEST:
        wanted = {0: "a whole number, 0 or more", 1: "a positive integer"}[lowest]
    else:
        wanted = f"a whole number from {lowest} to {highest}"

    def parse(value: object) -> int:
        if type(value) is not int or not lowest <= value <= highest:
            raise ExpectedError(wanted)
        return value

    return parse


def number(lowest: float, highest: float) -> Callable[[object], float]:
    """A number within limits."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= highest:
            raise ExpectedError(f"a number from {lowest:g} to {highest:g}")
        return float(value)

    return parse


def choice(kind: str, names: Sequence[str]) -> Callable[[object], str]:
    """One name out of a closed list."""

    def parse(value: object) -> str:
        if value not in names or not isinstance(value, str):
            raise BadInput(unknown(kind, value, names))
        return value

    return parse


def duration_s(value: object) -> float:
    """A duration above zero, in seconds."""
    seconds = quantity(DURATION, value)
    if not 0 < seconds <= 30 * 24 * 3600:
        raise ExpectedError("a duration above 0 and at most 30 days")
    return round(seconds, 6)


def milliseconds(value: object) -> float:
    """A time of a network condition in milliseconds; 0 is none."""
    found = 0.0 if value in (0, "0") and value is not False else quantity(DURATION, value) * 1000
    if found > 60_000:
        raise ExpectedError("at most 60s")
    return round(found, 6)


def rate_mbit(value: object) -> float:
    """A rate above zero, in Mbit/s."""
    rate = quantity(RATE, value)
    if not 0 < rate <= 1_000_000:
        raise ExpectedError("a rate above 0 and at most 1000gbit")
    return round(rate, 6)


def percentage(value: object) -> float:
    """A share of packets, in percent; 0 is none."""
    percent = 0.0 if value in (0, "0") and value is not False else quantity(SHARE, value)
    if percent >= 100:
        raise ExpectedError("a share below '100%'")
    return round(percent, 6)
