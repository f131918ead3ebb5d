"""pcap and pcapng files, made by hand and by tcpdump."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.packets import SYN, TCP, UDP
from driple.pipeline.readers.pcap import read_pcap
from driple.pipeline.traffic.packet_columns import Endpoint

A, B = "10.0.0.1", "10.0.0.2"
MAC = bytes(12)


def tcp(port: int, to: int, payload: int, seq: int = 0, flags: int = 16) -> bytes:
    return struct.pack(">HHIIBBHHH", port, to, seq, 7, 8 << 4, flags, 0, 0, 0) + bytes(12) + bytes(payload)


def ipv4(body: bytes, protocol: int = TCP, options: int = 0, fragment: int = 0) -> bytes:
    head = struct.pack(
        ">BBHHHBBH", 0x45 + options // 4, 0, 20 + options + len(body), 0, fragment, 64, protocol, 0
    )  # fmt: skip
    return head + socket.inet_aton(A) + socket.inet_aton(B) + bytes(options) + body


def ipv6(body: bytes) -> bytes:
    ends = socket.inet_pton(socket.AF_INET6, "fd00::1") + socket.inet_pton(socket.AF_INET6, "fd00::2")
    return struct.pack(">IHBB", 6 << 28, len(body), TCP, 64) + ends + body


def ethernet(packet: bytes, kind: int = 0x0800, tags: int = 0) -> bytes:
    return MAC + b"".join(struct.pack(">HH", 0x8100, 5) for _ in range(tags)) + struct.pack(">H", kind) + packet


def pcap(frames: list[bytes], link: int = 1, order: str = "<", nano: bool = False, snap: int = 65535) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, snap, link)]
    for i, frame in enumerate(frames):
        part = frame[:snap]
        parts.append(struct.pack(f"{order}IIII", 100 + i, 5, len(part), len(frame)) + part)
    return b"".join(parts)


def pcapng(frames: list[bytes], order: str = "<", unit: int | None = None) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = len(body) + 12
        return struct.pack(f"{order}II", kind, size) + body + struct.pack(f"{order}I", size)

    options = b"" if unit is None else struct.pack(f"{order}HHB3xHH", 9, 1, unit, 0, 0)
    parts = [
        block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(1, struct.pack(f"{order}HHI", 1, 0, 0) + options),
    ]
    for i, frame in enumerate(frames):
        power = 6 if unit is None else unit & 0x7F
        stamp = (100 + i) * (2 if unit is not None and unit & 0x80 else 10) ** power
        head = struct.pack(f"{order}IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame))
        parts.append(block(6, head + frame))
    return b"".join(parts)


FRAMES = [
    ethernet(ipv4(tcp(1000, 2000, 100, seq=5))),
    ethernet(ipv4(tcp(1000, 2000, 0, flags=SYN))),
    ethernet(ipv4(struct.pack(">HHHH", 53, 54, 8 + 30, 0) + bytes(30), UDP)),
    ethernet(ipv4(tcp(1000, 2000, 40), options=8)),
    ethernet(ipv4(tcp(1000, 2000, 40)), tags=1),
    ethernet(ipv4(tcp(1000, 2000, 40)), tags=2),
    ethernet(ipv6(tcp(3000, 4000, 50)), 0x86DD),
    ethernet(ipv4(tcp(1000, 2000, 40), fragment=100)),
    ethernet(bytes(28), 0x0806),
]
PAYLOADS = [100, 0, 30, 40, 40, 40, 50, 0, 0]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_all_kinds_of_frames(tmp_path: Path, order: str, nano: bool) -> None:
    found = read_pcap(written(tmp_path / "x.pcap", pcap(FRAMES, order=order, nano=nano)))
    assert found.payload_bytes.tolist() == PAYLOADS
    assert found.frame_bytes.tolist() == [len(frame) for frame in FRAMES] == found.wire_bytes.tolist()
    assert found.t_ns.tolist() == [(100 + i) * 10**9 + 5 * (1 if nano else 1000) for i in range(len(FRAMES))]
    assert found.seq.tolist()[0] == 5 and found.ack.tolist()[0] == 7
    assert found.flags.tolist() == [16, SYN, 0, 16, 16, 16, 16, 0, 0]
    first = found.flows[int(found.flow[0])]
    assert (first.source, first.destination, first.protocol) == (Endpoint(A, 1000), Endpoint(B, 2000), TCP)
    assert {int(found.flow[i]) for i in (0, 1, 3, 4, 5)} == {int(found.flow[0])}
    six = found.flows[int(found.flow[6])]
    assert (six.source, six.destination) == (Endpoint("fd00::1", 3000), Endpoint("fd00::2", 4000))
    fragment, other = found.flows[int(found.flow[7])], found.flows[int(found.flow[8])]
    assert (fragment.source, fragment.protocol) == (Endpoint(A, 0), TCP)
    assert (other.source.address, other.protocol) == ("", 0x0806)


@pytest.mark.parametrize(("order", "unit"), [("<", None), (">", None), ("<", 9), (">", 3), ("<", 0x80 | 30)])
def test_pcapng_gives_the_same(tmp_path: Path, order: str, unit: int | None) -> None:
    one = read_pcap(written(tmp_path / "x.pcap", pcap(FRAMES)))
    other = read_pcap(written(tmp_path / "x.pcapng", pcapng(FRAMES, order, unit)))
    assert other.payload_bytes.tolist() == one.payload_bytes.tolist()
    assert [other.flows[i] for i in other.flow.tolist()] == [one.flows[i] for i in one.flow.tolist()]
    assert other.t_ns.tolist() == [(100 + i) * 10**9 for i in range(len(FRAMES))]


@pytest.mark.parametrize(
    ("link", "head", "sent"),
    [
        (101, b"", None),
        (113, struct.pack(">HHHQH", 4, 1, 6, 0, 0x0800), True),
        (113, struct.pack(">HHHQH", 0, 1, 6, 0, 0x0800), False),
        (276, struct.pack(">HHIHBBQ", 0x0800, 0, 2, 1, 4, 6, 0), True),
    ],
)
def test_other_link_types(tmp_path: Path, link: int, head: bytes, sent: bool | None) -> None:
    frames = [head + ipv4(tcp(1000, 2000, 70))]
    found = read_pcap(written(tmp_path / "x.pcap", pcap(frames, link=link)))
    assert found.payload_bytes.tolist() == [70]
    assert found.flows[0].sent is sent


def test_short_snapshots_are_enough(tmp_path: Path) -> None:
    found = read_pcap(written(tmp_path / "x.pcap", pcap(FRAMES, snap=66)))
    assert found.payload_bytes.tolist()[:4] == PAYLOADS[:4]
    assert found.frame_bytes.tolist() == [len(frame) for frame in FRAMES]


def test_a_file_that_is_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    for content in (pcap(FRAMES), pcapng(FRAMES)):
        found = read_pcap(written(tmp_path / "x.pcap", content[:-20]))
        assert len(found) == len(FRAMES) - 1
        assert found.notes == ("x.pcap: cut short or damaged; read up to the last whole packet",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a pcap or pcapng file"),
        (b"hello", "not a pcap or pcapng file"),
        (pcap(FRAMES)[:10], "cut short or damaged"),
        (pcap(FRAMES)[:30], "no whole packet"),
        (pcapng(FRAMES)[:20], "no whole packet"),
        (pcapng(FRAMES).replace(struct.pack("<II", 0, 100_000_000), bytes([255, 255, 255, 0]) * 2), "damaged"),
        (pcap(FRAMES, link=127), r"link type 127 is not supported \(known: Ethernet \(1\)"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_pcap(written(tmp_path / "x.pcap", content))


def test_random_damage_is_never_a_crash(tmp_path: Path) -> None:
    for content in (pcap(FRAMES), pcapng(FRAMES)):
        for at in range(0, len(content), 31):
            damaged = bytearray(content)
            damaged[at] ^= 0xFF
            try:
                assert len(read_pcap(written(tmp_path / "x.pcap", bytes(damaged)))) <= len(FRAMES)
            except BadInput as error:
                assert len(str(error).splitlines()) == 1


def test_tcpdump_and_we_agree(tmp_path: Path) -> None:
    tcpdump = shutil.which("tcpdump")
    if tcpdump is None or os.getuid() != 0:
        pytest.skip("needs tcpdump and root")
    path = tmp_path / "x.pcap"
    command = [tcpdump, "-i", "lo", "-U", "-s", "96", "-Z", "root", "-w", str(path), "tcp"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and "listening" in process.stderr.readline()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def receive() -> None:
        line, _ = listener.accept()
        while line.recv(1 << 16):
            pass
        line.close()

    thread = threading.Thread(target=receive)
    thread.start()
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(bytes(300_000))
    thread.join()
    listener.close()

    def payload() -> int:
        try:
            found = read_pcap(path)
        except BadInput:  # nothing is in it yet
            return 0
        return int(found.of_flows([flow.destination.port == port for flow in found.flows]).payload_bytes.sum())

    for _ in range(100):
        if payload() >= 300_000:
            break
        threading.Event().wait(0.05)
    process.terminate()
    process.communicate(timeout=20)
    assert payload() == 300_000
