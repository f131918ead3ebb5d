"""What the packet capture costs, and how fast captures are read: docs/benchmarks/traffic.md.

The capture runs on a host of a lab that sends for some seconds at 1 Gbit/s in full-size packets, without segmentation
offload. Reading is compared in turn with `tshark -T fields`: with the fields that give the facts of our reader, which
must be the same, and with those of the published traffic study. Its own public scripts are compared if there is a
checkout of them. CPU time is used, because it depends least on what else a machine does.

    python benchmarks/traffic.py --study CHECKOUT --study-python PYTHON --write docs/benchmarks/traffic.md
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import study_scripts

from driple.orchestrator.lab.lab_client import Lab
from driple.pipeline.readers.pcap import read_pcap
from driple.pipeline.traffic.packet_columns import Packets

NAME = "traffic-benchmark"
CLI = [sys.executable, "-m", "driple.orchestrator.cli_lab"]
FIELDS = {
    "the same facts": (
        *("frame.time_epoch", "ip.src", "ip.dst", "ip.proto", "tcp.srcport", "tcp.dstport", "frame.len"),
        *("tcp.len", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags"),
    ),
    "the fields of the study": (
        *("frame.time", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "frame.interface_name", "frame.len"),
    ),
}
GOAL, STUDY_GOAL = 100, 80
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--study", type=Path, metavar="CHECKOUT", help="of the study's dml-network-traffic-analysis")
    parser.add_argument("--study-python", default=sys.executable, metavar="PYTHON", help="one that has pandas 1")
    parser.add_argument("--study-steps", type=int, default=60, help="of the captured job (default: %(default)s)")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    begin = time.monotonic()
    parts: tuple[Callable[[argparse.Namespace], list[str]], ...] = (capture_text, reading_text, study)
    lines = []
    for part in parts:
        lines += part(arguments)
        print(f"{part.__name__}: done after {time.monotonic() - begin:.0f} s", file=sys.stderr)
    page = "\n".join(lines)
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


def read(packets: int, rounds: int) -> dict[str, list[float]]:
    """Packets per CPU second of ours, and of tshark by kind of fields."""
    tshark = shutil.which("tshark")
    found: dict[str, list[float]] = {"ours": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pcap"
        write_capture(path, 1)
        start_s = 0.0 if tshark is None else tshark_s(tshark, path, ("frame.len",))[0]
        write_capture(path, packets)
        read_pcap(path)  # what is imported on first use is not reading, as is the start of tshark
        for number in range(rounds):
            begin = time.process_time()
            facts = read_pcap(path)
            found["ours"].append(packets / (time.process_time() - begin))
            for kind, fields in FIELDS.items() if tshark is not None else ():
                seconds, lines = tshark_s(str(tshark), path, fields)
                found.setdefault(kind, []).append(packets / (seconds - start_s))
                if not number and kind == next(iter(FIELDS)):
                    check(facts, lines)
    return found


def tshark_s(tshark: str, path: Path, fields: Sequence[str]) -> tuple[float, list[str]]:
    """CPU seconds, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [word for field in fields for word in ("-e", field)]
    done = subprocess.run([tshark, "-r", path, "-T", "fields", *words], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.splitlines()


def check(facts: Packets, lines: Sequence[str]) -> None:
    """Both readers must find the same."""
    columns = (facts.t_ns, facts.flow, facts.frame_bytes, facts.payload_bytes, facts.seq, facts.ack, facts.flags)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for line, (t_ns, number, length, payload, seq, ack, flags) in zip(lines, rows, strict=True):
        flow = facts.flows[number]
        ends = [flow.source.address, flow.destination.address, flow.protocol, flow.source.port, flow.destination.port]
        own = [f"{t_ns // 10**9}.{t_ns % 10**9:09}", *ends, length, payload, seq, ack, f"0x{flags:04x}"]
        assert line.split("\t") == list(map(str, own)), f"{line}: {own}"


def write_capture(path: Path, packets: int) -> None:
    """Four workers that send to each other, with an acknowledgement for every second packet; 96 bytes of each frame."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)]
    for i in range(packets):
        source, size = i // 16 % 4, 0 if i % 3 == 2 else 1448
        ends = bytes([10, 0, 0, source, 10, 0, 0, (source + 1) % 4])
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 52 + size, 0, 0, 64, 6, 0) + ends
        tcp = struct.pack(">HHIIBBHHH", 40_000 + source, 5000, i * 1448 % 2**32, 0, 8 << 4, 16, 0, 0, 0) + bytes(12)
        frame = (bytes(12) + b"\x08\x00" + ip + tcp + bytes(size))[:96]
        parts.append(struct.pack("<IIII", 1_700_000_000 + i // 80_000, i % 80_000 * 12, len(frame), 66 + size) + frame)
    path.write_bytes(b"".join(parts))


def study(arguments: argparse.Namespace) -> list[str]:
    """The lines of the page on the scripts of the study."""
    head = ["## The scripts of the traffic study", ""]
    if arguments.study is None:
        return [*head, "Not measured: no checkout of them was given.", ""]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packets = study_scripts.capture_job(folder, arguments.study_steps)
        rounds = [
            study_scripts.compare(arguments.study, arguments.study_python, folder) for _ in range(arguments.rounds)
        ]
    return head + study_scripts.lines(packets, rounds, STUDY_GOAL)


def capture_text(arguments: argparse.Namespace) -> list[str]:
    """The first part of the page."""
    captured = [capture(arguments.seconds) for _ in range(arguments.rounds)]
    rows = [
        f"| {each['frames']} | {each['frames'] / each['seconds']:.0f} | {each['dropped']} | "
        f"{each['cpu_share_pct']:.2f} % | {each['bytes_per_packet']:.2f} | {each['sealed_per_s']:,.0f} |"
        for each in captured
    ]
    cost = statistics.median(each["cpu_share_pct"] for each in captured)
    size = max(each["bytes_per_packet"] for each in captured)
    dropped = sum(each["dropped"] for each in captured)
    reached = "reached" if cost <= 5 and size <= 4 and not dropped else "NOT reached"
    return [
        "# Packet capture and reading",
        "",
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; "
        f"{datetime.date.today()}. Reproduce with",
        "`python benchmarks/traffic.py --study CHECKOUT --study-python PYTHON --write docs/benchmarks/traffic.md`.",
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
    ]


def reading_text(arguments: argparse.Namespace) -> list[str]:
    """The part of the page on reading."""
    reading = read(arguments.packets, arguments.rounds)
    middle = statistics.median
    lines = [
        "## Reading",
        "",
        f"A pcap file of {arguments.packets} packets with 96 bytes of each, {arguments.rounds} rounds in turn, "
        "CPU time without imports and without",
        "the start of tshark. Our reader finds times, addresses, ports, protocols, lengths, sequence and",
        "acknowledgement numbers and flags. The benchmark checks that `tshark` prints the same for every packet.",
        "",
        "| reader | packets per second | ours is faster by |",
        "|---|---|---|",
        f"| ours | {middle(reading['ours']):,.0f} | |",
    ]
    commands, lowest = [], []
    for kind, fields in FIELDS.items():
        if kind not in reading:
            return [*lines, "", "tshark is not installed: not compared.", ""]
        ratios = [own / other for own, other in zip(reading["ours"], reading[kind], strict=True)]
        lowest.append(middle(ratios))
        lines.append(
            f"| `tshark`, {kind} | {middle(reading[kind]):,.0f} | "
            f"{middle(ratios):.0f} times ({min(ratios):.0f} to {max(ratios):.0f}) |"
        )
        words = [f"-e {field}" for field in fields]
        half = len(words) // 2
        commands += [
            "",
            f"    tshark -r x.pcap -T fields {' '.join(words[:half])} \\",
            f"        {' '.join(words[half:])}",
        ]
    verdict = "reached" if min(lowest) >= GOAL else "NOT reached"
    return [*lines, *commands, "", f"The goal is {GOAL} times: {verdict}.", ""]


if __name__ == "__main__":
    sys.exit(main())
