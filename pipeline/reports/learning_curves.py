"""Learning curves of an inspector's folder, from whichever file still has them. Needs neither torch nor TensorBoard.

`training/member-*.safetensors` are states to go on from, with the history in their header: eight bytes that say how
long it is, then JSON. `events/network-*/` are the files of TensorBoard: records of eight bytes length, four bytes
checksum, a protobuf message and four bytes checksum.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.formats.inspector import EVENTS_FOLDER, STATE_KEY, STATES_FOLDER

NAMES = ("train_loss", "val_loss", "val_nrmse")
_MOST_HEADER = 100_000_000
_MOST_EPOCHS = 1_000_000


@dataclass(frozen=True)
class Curve:
    """What one network of an inspector did, epoch by epoch."""

    member: int
    values: dict[str, list[float]]
    """By name; NaN where an epoch has no value."""


def read_curves(folder: Path) -> list[Curve]:
    """All curves that can be read, of each network one; a damaged file is one that has none."""
    found: dict[int, dict[str, list[float]]] = {}
    for path in sorted(folder.glob(f"{EVENTS_FOLDER}/network-*/*tfevents*")):
        points = found.setdefault(_number(path.parent.name), {})
        for epoch, name, value in _events(path):
            curve = points.setdefault(name, [])
            # A training that went on after a stop writes some epochs again: the later ones count.
            curve.extend([float("nan")] * (epoch + 1 - len(curve)))
            curve[epoch] = value
    for path in sorted(folder.glob(f"{STATES_FOLDER}/member-*.safetensors")):
        history = _history(path)
        if history:
            found[_number(path.stem)] = history
    return [Curve(member, values) for member, values in sorted(found.items()) if values]


def _history(path: Path) -> dict[str, list[float]]:
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, _MOST_HEADER)))
        epochs = json.loads(header["__metadata__"][STATE_KEY])["history"]
        return {name: [float(epoch[name]) for epoch in epochs] for name in NAMES}
    except (OSError, ValueError, KeyError, TypeError, struct.error, RecursionError):
        return {}


def _events(path: Path) -> Iterator[tuple[int, str, float]]:
    try:
        content = path.read_bytes()
    except OSError:
        return
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        record = content[at + 12 : at + 12 + length]
        if len(record) < length:  # cut short by a kill
            return
        try:
            yield from _points(record)
        except (ValueError, IndexError, struct.error):
            return
        at += 16 + length


def _points(event: bytes) -> Iterator[tuple[int, str, float]]:
    """Of an Event: field 2 is the step, field 5 a Summary, whose fields 1 are values with tag (1) and number (2)."""
    step, summaries = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, point in _fields(summary):
            if number == 1 and isinstance(point, bytes):
                parts = dict(_fields(point))
                tag, single = parts.get(1), parts.get(2)
                if isinstance(tag, bytes) and isinstance(single, bytes) and 0 <= step < _MOST_EPOCHS:
                    yield step, tag.decode(errors="replace"), struct.unpack("<f", single)[0]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message's fields."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            if kind != 2:
                raise ValueError("no such kind of field")
            length, at = _varint(message, at)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number without an end")


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 0
