"""Packets on lab hosts: as many bytes as the interface counts, and what the link lost."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.run_spec import NetworkCondition
from driple.orchestrator.lab.lab_client import Lab
from driple.pipeline.readers.packet_file import read_packet_file
from driple.pipeline.traffic.packet_columns import Packets
from driple.pipeline.traffic.tcp import retransmissions

Remote = Callable[..., Any]
NAME = "packets"
MODULE = ["-m", "driple.orchestrator.cli_lab"]
BYTES = 20_000_000

CAPTURED = """
import base64, json, pathlib, socket, subprocess, sys, time
host, keeper, peer, amount = sys.argv[1:5]
folder = pathlib.Path("/sys/class/net/eth0/statistics")
count = lambda: [int((folder / name).read_text()) for name in ("tx_bytes", "rx_bytes", "tx_packets", "rx_packets")]
out = pathlib.Path("captured.parquet").absolute()
words = [sys.executable, "-m", "driple.agents.cli_capture", "--nic", "eth0", "--out", str(out), "--host", host]
capture = subprocess.Popen([*words, "--keeper", keeper], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert capture.stdout.readline() == "ready\\n"
before = count()
if peer == "-":
    listener = socket.create_server(("", 7002))
    pathlib.Path("listening").touch()
    line, _ = listener.accept()
    while line.recv(1 << 20): pass
    line.close()
elif int(amount):
    with socket.create_connection((peer, 7002), timeout=20) as line: line.sendall(bytes(int(amount)))
else:
    with socket.socket() as line: line.connect_ex((peer, 7002))  # refused: nobody listens
time.sleep(1)
after = count()
capture.communicate("stop\\n", timeout=20)
from driple.agents.capture.seal_packets import seal_packets
seal_packets(pathlib.Path(f"{out}.samples"), out)
print(json.dumps([[b - a for a, b in zip(before, after)], base64.b64encode(out.read_bytes()).decode()]))
"""


@pytest.fixture(autouse=True)
def as_before(lab: Lab) -> Iterator[None]:
    yield
    lab.shape(NetworkCondition(), 1000)


class Found:
    """What a host captured, sent and received apart."""

    def __init__(self, said: str, tmp_path: Path) -> None:
        self.counted, content = json.loads(said)
        path = tmp_path / "fetched.parquet"
        path.write_bytes(base64.b64decode(content))
        packets, facts = read_packet_file(path)
        self.dropped = facts.dropped
        self.sent = packets.of_flows([bool(flow.sent) for flow in packets.flows])
        self.received = packets.of_flows([not flow.sent for flow in packets.flows])

    @property
    def captured(self) -> list[int]:
        """As the interface counts."""
        ways = (self.sent, self.received)
        return [*(int(way.frame_bytes.sum()) for way in ways), *(len(way) for way in ways)]


def segments(packets: Packets) -> int:
    return int((packets.segments * (packets.payload_bytes > 0)).sum())


def captured(lab: Lab, remote: Remote, tmp_path: Path) -> tuple[Found, Found]:
    """A stream from lab1 to lab2, captured at both ends."""
    script = tmp_path / "captured.py"
    script.write_text(CAPTURED)
    line = f"{sys.executable} {script} {{}} {lab.control_socket} {{}} {BYTES}"
    remote(lab, "lab2", "rm -f listening")
    receiver = remote(lab, "lab2", line.format("lab2", "-"), wait=False)
    remote(lab, "lab2", "timeout 20 sh -c 'until test -e listening; do sleep 0.05; done'")
    sender = remote(lab, "lab1", line.format("lab1", lab.data_address("lab2")))
    return Found(sender, tmp_path), Found(receiver(), tmp_path)


def test_packets_are_what_the_interface_counts(lab: Lab, remote: Remote, tmp_path: Path) -> None:
    sender, receiver = captured(lab, remote, tmp_path)
    for found in (sender, receiver):
        assert found.captured == found.counted
        assert found.dropped == 0
    assert int(receiver.received.payload_bytes.sum()) == BYTES
    # Offload is on: a frame is many packets, and each has its headers on the wire.
    full = BYTES * (1 + 66 / 1448)
    assert int(receiver.received.wire_bytes.sum()) == pytest.approx(full, rel=0.01)
    assert int(receiver.received.frame_bytes.sum()) < 0.97 * full


def test_loss_is_seen_as_retransmissions_and_missing_segments(lab: Lab, remote: Remote, tmp_path: Path) -> None:
    lab.shape(NetworkCondition(loss_pct=2), 1000)
    sender, receiver = captured(lab, remote, tmp_path)
    assert sender.captured == sender.counted and receiver.captured == receiver.counted
    least = BYTES / 1448
    assert 0.01 * least < retransmissions(sender.sent).segments < 0.06 * least
    assert 0.01 < 1 - segments(receiver.received) / segments(sender.sent) < 0.04
    assert int(sender.sent.payload_bytes.sum()) > BYTES  # what was lost was sent again


def test_a_plain_user_captures_through_the_supervisor(plain_user: Any, tmp_path: Path) -> None:
    lab = ["--name", NAME]
    made = plain_user.run([*MODULE, "up", "--hosts", "2", *lab])
    assert made.returncode == 0, made.stderr
    try:
        folder = Path(f"/tmp/driple-lab-{plain_user.uid}-{NAME}")
        paths = [f"{name}={plain_user.environment[name]}" for name in ("PYTHONPATH",) if name in plain_user.environment]
        python = ["env", *paths, plain_user.python]
        run = [*MODULE, "exec", *lab, "lab1", "--", *python]
        refused = plain_user.run([*run, "-m", "driple.agents.cli_capture", "--nic", "eth0", "--check"])
        assert refused.returncode == 2 and "CAP_NET_RAW" in refused.stderr
        done = plain_user.run([*run, "-c", CAPTURED, "lab1", str(folder / "control"), "lab2", "0"])
        assert done.returncode == 0, done.stderr
        found = Found(done.stdout, tmp_path)
        assert found.captured == found.counted and found.captured[3] >= 2
    finally:
        ended = plain_user.run([*MODULE, "down", *lab])
    assert ended.returncode == 0, ended.stderr
