"""What the packet capture costs, and how fast captures are read: docs/benchmarks/traffic.md.

The capture runs on a host of a lab that sends for some seconds at 1 Gbit/s in full-size packets, without segmentation
offload. Reading is compared with `tshark -T fields`, with the fields that the published traffic study uses, in turn.
CPU time is used, because it depends least on what else a machine does.

    python benchmarks/traffic.py --write docs/benchmarks/traffic.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from driple.orchestrator.lab.lab_client import Lab
from driple.pipeline.readers.pcap import read_pcap

NAME = "traffic-benchmark"
CLI = [sys.executable, "-m", "driple.orchestrator.cli_lab"]
FIELDS = ("frame.time", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "frame.interface_name", "frame.len")
HOST = """
import json, pathlib, socket, subprocess, sys, time
from driple.orchestrator.lab.linux_calls import set_segmentation
from driple.agents.capture.seal_packets import seal_packets
set_segmentation("eth0", False)
out = pathlib.Path("captured.parquet").absolute()
words = [sys.executable, "-m", "driple.agents.cli_capture", "--nic", "eth0", "--out", str(out)]
capture = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
capture.stdout.readline()
end, data = time.monotonic() + float(sys.argv[2]), bytes(1 << 18)
with socket.create_connection((sys.argv[1], 7003), timeout=20) as line:
    while time.monotonic() < end: line.sendall(data)
summary = json.loads(capture.communicate("stop\\n", timeout=60)[0])
begin = time.process_time()
rows = seal_packets(pathlib.Path(f"{out}.samples"), out).rows
sealing = time.process_time() - begin
print(json.dumps({**summary, "bytes_per_packet": out.stat().st_size / rows, "sealed_per_s": rows / sealing}))
"""
RECEIVER = """
import socket
listener = socket.create_server(("", 7003))
print("ready", flush=True)
line, _ = listener.accept()
while line.recv(1 << 20): pass
"""


def main() -> int:
    """Measures, and prints or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packets", type=int, default=200_000)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    captured = [capture(arguments.seconds) for _ in range(arguments.rounds)]
    reading = read(arguments.packets, arguments.rounds)
    page = text(captured, reading, arguments)
    if arguments.write:
        arguments.write.write_text(page)
    print(page)
    return 0


def capture(seconds: float) -> dict[str, Any]:
    """One stream with its capture."""
    with Lab.start(hosts=2, name=NAME) as lab:
        run = [*CLI, "exec", "--name", NAME]
        receiver = subprocess.Popen([*run, "lab2", "--", sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        words = [*run, "lab1", "--", sys.executable, "-c", HOST, lab.data_address("lab2"), str(seconds)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
        receiver.communicate(timeout=20)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read(packets: int, rounds: int) -> list[tuple[float, float | None]]:
    """Packets per CPU second of ours and of tshark, by round."""
    tshark = shutil.which("tshark")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pcap"
        write_capture(path, packets)
        for _ in range(rounds):
            begin = time.process_time()
            assert len(read_pcap(path)) == packets
            ours = packets / (time.process_time() - begin)
            found.append((ours, None if tshark is None else packets / tshark_s(tshark, path)))
    return found


def tshark_s(tshark: str, path: Path) -> float:
    """CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    fields = [word for field in FIELDS for word in ("-e", field)]
    subprocess.run([tshark, "-r", path, "-T", "fields", *fields], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_capture(path: Path, packets: int) -> None:
    """Four workers that send to each other, with an acknowledgement for every second packet; 96 bytes of each frame."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)]
    for i in range(packets):
        source, size = i // 16 % 4, 0 if i % 3 == 2 else 1448
        ends = bytes([10, 0, 0, source, 10, 0, 0, (source + 1) % 4])
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 52 + size, 0, 0, 64, 6, 0) + ends
        tcp = struct.pack(">HHIIBBHHH", 40_000 + source, 5000, i * 1448 % 2**32, 0, 8 << 4, 16, 0, 0, 0) + bytes(12)
        frame = (bytes(12) + b"\x08\x00" + ip + tcp + bytes(size))[:96]
        parts.append(struct.pack("<IIII", 100 + i // 80_000, i % 80_000 * 12, len(frame), 66 + size) + frame)
    path.write_bytes(b"".join(parts))


def text(
    captured: list[dict[str, Any]], reading: list[tuple[float, float | None]], arguments: argparse.Namespace
) -> str:
    """The page."""
    middle = statistics.median
    ours = middle(found for found, _ in reading)
    ratios = [found / other for found, other in reading if other is not None]
    rows = [
        f"| {each['frames']} | {each['frames'] / each['seconds']:.0f} | {each['dropped']} | "
        f"{each['cpu_share_pct']:.2f} % | {each['bytes_per_packet']:.2f} | {each['sealed_per_s']:,.0f} |"
        for each in captured
    ]
    cost = middle(each["cpu_share_pct"] for each in captured)
    size = max(each["bytes_per_packet"] for each in captured)
    dropped = sum(each["dropped"] for each in captured)
    reached = "reached" if cost <= 5 and size <= 4 and not dropped else "NOT reached"
    faster = "tshark is not installed"
    if ratios:
        verdict = "reached" if middle(ratios) >= 100 else "NOT reached"
        faster = (
            f"{middle(ratios):.0f} times ({min(ratios):.0f} to {max(ratios):.0f}) `tshark -T fields`, which read "
            f"{middle(other for _, other in reading if other is not None):,.0f}.\n"
            f"The goal is 100 times: {verdict}"
        )
    lines = [
        "# Packet capture and reading",
        "",
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; "
        f"{datetime.date.today()}. Other work ran on the machine. Reproduce with",
        "`python benchmarks/traffic.py --write docs/benchmarks/traffic.md`.",
        "",
        "## Capture",
        "",
        f"A lab host sends one TCP stream for {arguments.seconds:g} s over a link of 1 Gbit/s, without segmentation "
        "offload.",
        "",
        "| packets | per second | dropped | of a core | bytes per packet on disk | sealed packets per CPU second |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"The goal is at most 5 % of a core, at most 4 bytes per packet and no drops: {reached}.",
        "",
        "## Reading",
        "",
        f"A pcap file of {arguments.packets} packets with 96 bytes of each, {arguments.rounds} rounds in turn, "
        "CPU time:",
        f"{ours:,.0f} packets per second. That is {faster}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
