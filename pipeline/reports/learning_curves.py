"""Reads the learning curves of an inspector from its training states or TensorBoard files, without torch.

`training/member-*.safetensors` have the history in their header: eight bytes with its length, then JSON.
`events/network-*/` have records of eight bytes length, four bytes checksum, a protobuf message, four bytes checksum.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.formats.inspector import EVENTS_FOLDER, STATE_KEY, STATES_FOLDER
from driple.pipeline.graph.graphdef_proto import message_class

NAMES = ("train_loss", "val_loss", "val_nrmse")
_MOST_HEADER = 100_000_000
_MOST_EPOCHS = 1_000_000


@dataclass(frozen=True)
class Curve:
    """The learning curves of one network."""

    member: int
    values: dict[str, list[float]]
    """Values by epoch; NaN if an epoch has none."""


def read_curves(folder: Path) -> list[Curve]:
    """The curves of each network. A damaged file counts as empty from the damage on."""
    found: dict[int, dict[str, list[float]]] = {}
    for path in sorted(folder.glob(f"{EVENTS_FOLDER}/network-*/*tfevents*")):
        points = found.setdefault(_number(path.parent.name), {})
        for epoch, name, value in _events(path):
            curve = points.setdefault(name, [])
            # A resumed training writes some epochs again: the later values count.
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
    event_class, at = message_class("Event"), 0
    from google.protobuf.message import DecodeError

    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        record = content[at + 12 : at + 12 + length]
        if len(record) < length:  # the training was killed
            return
        try:
            event = event_class.FromString(record)
        except DecodeError:
            return
        for value in event.summary.value:
            if value.HasField("simple_value") and 0 <= event.step < _MOST_EPOCHS:
                yield event.step, value.tag.decode(errors="replace"), value.simple_value
        at += 16 + length


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 0
