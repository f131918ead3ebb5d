"""The records of a long capture: many parts of a file are followed at once, with the result of one after the other."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from capture_files import frame

from driple.pipeline.readers import file_window
from driple.pipeline.readers.pcap import read_pcap

RECORDS = 12_000
TIME_S = 1_700_000_000
Writer: TypeAlias = Callable[[str, int, bytes], bytes]


def record(order: str, number: int, data: bytes) -> bytes:
    return struct.pack(f"{order}IIII", TIME_S + number, number % 1000, len(data), len(data)) + data


def block(order: str, number: int, data: bytes) -> bytes:
    data += bytes(-len(data) % 4)
    stamp = (TIME_S + number) * 10**6 + number % 1000
    size = 32 + len(data)
    head = struct.pack(f"{order}IIIIIII", 6, size, 0, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
    return head + data + struct.pack(f"{order}I", size)


def pcap_header(order: str) -> bytes:
    return struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def pcapng_header(order: str) -> bytes:
    section = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    return section + struct.pack(f"{order}IIHHII", 1, 20, 1, 0, 0, 20)


HEADERS: dict[Writer, Callable[[str], bytes]] = {record: pcap_header, block: pcapng_header}


def payload(kind: str, order: str, write: Writer, rng: random.Random) -> bytes:
    """What a frame carries: random lengths, or in addition what looks like records."""
    size = rng.choice([0, 0, 4, 80, 400])
    if kind == "decoys" and rng.random() < 0.2:
        return b"".join(write(order, rng.randrange(100), bytes(20)) for _ in range(5))
    return rng.randbytes(size) if kind == "random" else bytes(size)


@pytest.mark.parametrize("kind", ["zeros", "random", "decoys"])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("write", [record, block])
@pytest.mark.parametrize("window", [file_window.WINDOW_BYTES, 1 << 18])
def test_long_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Writer, order: str, kind: str, window: int
) -> None:
    monkeypatch.setattr(file_window, "WINDOW_BYTES", window)
    rng = random.Random(5)
    frames = [frame(1, 2, 0) + payload(kind, order, write, rng) for _ in range(RECORDS)]
    records = [write(order, i, data) for i, data in enumerate(frames)]
    path = tmp_path / "x.pcap"
    path.write_bytes(HEADERS[write](order) + b"".join(records))
    found = read_pcap(path)
    assert found.t_ns.tolist() == [(TIME_S + i) * 10**9 + i % 1000 * 1000 for i in range(RECORDS)]
    padding = 4 if write is block else 1
    assert found.frame_bytes.tolist() == [len(data) + -len(data) % padding for data in frames]
    assert found.notes == ()
    # A length that cannot be, in the middle: everything before it is read.
    broken = 7_777
    at = len(HEADERS[write](order)) + sum(map(len, records[:broken])) + (8 if write is record else 4)
    content = bytearray(path.read_bytes())
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    damaged = read_pcap(path)
    assert np.array_equal(damaged.t_ns, found.t_ns[:broken])
    assert damaged.notes == ("x.pcap: cut short or damaged; read up to the last whole packet",)


def test_frames_much_longer_than_the_first_ones(tmp_path: Path) -> None:
    """The lengths of the first records say how the file is divided. Here they say it wrongly."""
    sizes = [0] * 100 + [60_000] * 100 + [0] * 5000 + [1400] * 500
    path = tmp_path / "x.pcap"
    parts = [record("<", i, frame(1, 2, size)) for i, size in enumerate(sizes)]
    path.write_bytes(pcap_header("<") + b"".join(parts))
    assert read_pcap(path).payload_bytes.tolist() == sizes


def test_sections_of_other_byte_order(tmp_path: Path) -> None:
    """A pcapng file can be several files one after the other."""
    path = tmp_path / "x.pcapng"
    path.write_bytes(
        b"".join(pcapng_header(order) + b"".join(block(order, i, frame(1, 2, 40)) for i in range(3)) for order in "<><")
    )
    assert read_pcap(path).payload_bytes.tolist() == [40] * 9
