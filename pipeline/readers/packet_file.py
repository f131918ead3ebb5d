"""Reads packet files of runs (contracts/formats/packets.py). A damaged row group loses only its own rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.packets import PACKET_COLUMNS, SCHEMA_VERSION, PacketFacts
from driple.contracts.formats.trace import METADATA_KEY
from driple.pipeline.traffic.packet_columns import Endpoint, Flow, Ints, Packets

_NAMES = {column.name: column.name for column in PACKET_COLUMNS} | {"t_mono_us": "t_ns"}

_SLACK_US = 60_000_000
"""How far times may be outside the capture: wall clocks are corrected while it runs."""


def read_packet_file(
    path: Path, to_timeline: Callable[[Ints], Ints] = lambda t_ns: t_ns
) -> tuple[Packets, PacketFacts]:
    """Reads a packet file; `to_timeline` maps times of the host's monotonic clock. Raises BadInput."""
    import pyarrow
    import pyarrow.parquet as parquet

    failures = (OSError, pyarrow.ArrowException, ValueError)
    try:
        file = parquet.ParquetFile(path)
        facts = _facts(path, file.schema_arrow.metadata or {})
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except failures as error:
        raise BadInput(f"{path}: not readable as a packet file ({shown(str(error))})") from None
    groups, lost, rows_lost = [], 0, 0
    for number in range(file.num_row_groups):
        try:
            table = file.read_row_group(number, columns=list(_NAMES), use_threads=False)
            groups.append({new: table[old].to_numpy().astype(np.int64) for old, new in _NAMES.items()})
            if not _plausible(groups[-1], facts):
                raise ValueError("values that no capture has")
        except failures:
            if groups and len(groups) + lost > number:
                groups.pop()
            lost += 1
            rows_lost += file.metadata.row_group(number).num_rows
    columns: dict[str, Any] = {
        name: np.concatenate([group[name] for group in groups]) if groups else np.zeros(0, np.int64)
        for name in _NAMES.values()
    }
    columns["t_ns"] = to_timeline(columns["t_ns"] * 1000)
    flows = tuple(
        Flow(
            Endpoint(each.source, each.source_port),
            Endpoint(each.destination, each.destination_port),
            each.protocol,
            each.sent,
        )
        for each in facts.flows
    )
    notes = []
    if lost:
        notes.append(f"{path.name}: {lost} damaged blocks; {rows_lost} packets are missing")
    if facts.damaged_bytes:
        notes.append(f"{path.name}: {facts.damaged_bytes} bytes of the capture were damaged and are missing")
    if facts.dropped:
        notes.append(f"{path.name}: the kernel dropped {facts.dropped} packets")
    if facts.stopped_early:
        notes.append(f"{path.name}: the capture ended early: {facts.stopped_early}")
    damaged = bool(lost or facts.damaged_bytes or facts.stopped_early)
    dropped = facts.dropped + rows_lost
    return Packets(**columns, flows=flows, dropped=dropped, damaged=damaged, notes=tuple(notes)), facts


def _plausible(group: Mapping[str, Any], facts: PacketFacts) -> bool:
    """Whether all flows are known, no size is negative, and all times are about those of the capture."""
    limits = {  # times are still microseconds here
        "t_ns": (facts.first_mono_us - _SLACK_US, facts.last_mono_us + _SLACK_US),
        "flow": (0, len(facts.flows) - 1),
        "frame_bytes": (0, np.inf),
        "payload_bytes": (0, np.inf),
        "segments": (1, np.inf),
    }
    return all(((group[name] >= low) & (group[name] <= high)).all() for name, (low, high) in limits.items())


def _facts(path: Path, metadata: dict[bytes, bytes]) -> PacketFacts:
    plain = json.loads(metadata.get(METADATA_KEY.encode(), b"null"))
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != SCHEMA_VERSION:
        raise BadInput(f"{path}: packet file of schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
    return PacketFacts.read(plain, str(path))
