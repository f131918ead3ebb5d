"""Writes small pcap files of TCP frames."""

from __future__ import annotations

import struct
from pathlib import Path


def frame(source: int, destination: int, size: int) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", 1000 + source, 1000 + destination, 0, 0, 5 << 4, 16, 0, 0, 0)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + size, 0, 0, 64, 6, 0) + bytes([10, 0, 0, source, 10, 0, 0, destination])
    return bytes(12) + b"\x08\x00" + ip + tcp + bytes(size)


def capture(path: Path, frames: list[tuple[float, bytes]], snap: int = 65535) -> None:
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for t_s, data in frames:
        part = data[:snap]
        parts.append(struct.pack("<IIII", int(t_s), min(round(t_s % 1 * 1e6), 999_999), len(part), len(data)) + part)
    path.write_bytes(b"".join(parts))
