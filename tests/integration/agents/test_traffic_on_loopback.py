"""Known bytes over a loopback of our own: what the interface's counters and the flows say about them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.integration

SENT = 20_000_000

# Waits until the sampler has read and flushed at least once more, however slow the machine is.
SETTLE = """
import os, subprocess, sys, time
samples = sys.argv[1] + ".samples"
def settle(flushes=2):
    size = 0
    while flushes:
        now = os.path.getsize(samples) if os.path.exists(samples) else 0
        flushes -= now > size > 0
        size = now
        time.sleep(0.05)
"""

# Sends bytes to itself. IPv4 and, at the listening end, IPv4 inside IPv6, as servers that listen for both have it.
TRANSFER = (
    SETTLE
    + """
import socket, struct, threading
sent = int(sys.argv[2])
listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
listener.bind(("::", 0)); listener.listen()
client = socket.socket(); client.connect(("127.0.0.1", listener.getsockname()[1]))
server, _ = listener.accept()
def drain():
    left = sent
    while left: left -= len(server.recv(1 << 16))
thread = threading.Thread(target=drain); thread.start()
settle()
for _ in range(10):
    client.sendall(bytes(sent // 10)); time.sleep(0.03)
thread.join()
settle()
(retransmitted,) = struct.unpack_from("=I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 100)
print(client.getsockname()[1], listener.getsockname()[1], retransmitted)
"""
)

# Takes the interface away under the sampler, and sets up another of the same name.
REPLACE = (
    SETTLE
    + """
def ip(line): subprocess.run(["ip", *line.split()], check=True)
def up():
    ip("link add v0 type veth peer name v1"); ip("link set v0 up"); ip("link set v1 up")
up()
options = ["--hz", "100", "--nic", "v0", "--watch-stdin", "--out", sys.argv[1]]
sampler = subprocess.Popen([sys.executable, "-m", "driple.agents.cli", *options], stdin=subprocess.PIPE)
settle(); ip("link del v0"); settle(); up(); settle(4)
sampler.communicate(b"stop\\n")
sys.exit(sampler.returncode)
"""
)


@pytest.fixture
def traced(tmp_path: Path, own_network: list[str], start: Callable[..., Any]) -> tuple[Any, Any, dict[str, Any], str]:
    out = tmp_path / "x.parquet"
    options = ["--hz", "100", "--nic", "lo", "--flows", "20", "--out", str(out)]
    process = start(
        *own_network,
        *(sys.executable, "-m", "driple.agents.cli", *options),
        *("--", sys.executable, "-c", TRANSFER, str(out), str(SENT)),
    )
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    trace = pq.read_table(out)
    about = json.loads(trace.schema.metadata[b"driple"])
    return trace, pq.read_table(tmp_path / "x.flows.parquet"), about, stdout


def test_counters_and_flows_tell_the_bytes_that_were_sent(
    traced: tuple[Any, Any, dict[str, Any], str],
) -> None:
    trace, flows, about, stdout = traced
    for column in ("nic_tx_bytes", "nic_rx_bytes"):
        values = trace[column].to_pylist()
        assert None not in values
        assert values == sorted(values)
        # Headers come on top: 66 bytes to a segment of up to 64 KB, and acknowledgements the other way.
        assert SENT <= values[-1] - values[0] <= 1.1 * SENT
        assert len(set(values)) >= 3
    packets = trace["nic_tx_packets"].to_pylist()
    assert SENT / 65536 <= packets[-1] - packets[0] <= SENT / 500
    quality = about["sources"]["nic"]
    assert (quality["way"], quality["resets"], quality["wraps"], quality["vanished"]) == ("netlink", 0, 0, 0)

    client_port, server_port, retransmitted = map(int, stdout.split())
    by_port: dict[int, list[dict[str, Any]]] = {}
    for row in flows.to_pylist():
        assert (row["local_address"], row["remote_address"]) == ("127.0.0.1", "127.0.0.1")
        by_port.setdefault(row["local_port"], []).append(row)
    assert set(by_port) == {client_port, server_port}
    sender, receiver = by_port[client_port], by_port[server_port]
    assert {row["remote_port"] for row in sender} == {server_port}
    assert len({row["flow"] for row in sender}) == 1
    # The acknowledged count includes the start of the connection.
    assert 0 <= sender[-1]["bytes_acked"] - SENT <= 1
    assert receiver[-1]["bytes_received"] == SENT
    assert sender[0]["bytes_acked"] <= 1
    assert sender[-1]["bytes_received"] == 0
    assert [row["bytes_acked"] for row in sender] == sorted(row["bytes_acked"] for row in sender)
    assert {row["of_task"] for row in sender[5:]} == {1}
    # None on a quiet machine; on a busy one the sender may lose patience even here.
    assert (sender[0]["retransmits"], sender[-1]["retransmits"]) == (0, retransmitted)
    assert about["tables"]["flows"]["most_flows"] == 2


def test_an_interface_that_is_taken_away_and_set_up_again(
    tmp_path: Path, own_network: list[str], start: Callable[..., Any]
) -> None:
    out = tmp_path / "x.parquet"
    if start(*own_network, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1").wait(30) != 0:
        pytest.skip("this kernel has no veth")
    process = start(*own_network, sys.executable, "-c", REPLACE, out)
    stdout, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    lines = stdout.splitlines()
    summary = json.loads(lines[-1])
    quality = summary["sources"]["nic"]
    assert quality["vanished"] == 1
    assert errors.count("interface v0 is gone") == 1
    values = pq.read_table(out)["nic_tx_bytes"].to_pylist()
    assert values[0] is not None
    assert values[-1] is not None
    assert None in values
    assert quality["columns"]["nic_tx_bytes"]["nulls"] == values.count(None)
