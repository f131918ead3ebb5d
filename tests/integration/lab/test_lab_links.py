"""Links: rate, loss, delay, cables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from driple.contracts.errors import HostLost
from driple.contracts.run_spec import CONGESTION_CONTROLS, NetworkCondition
from driple.orchestrator.lab.lab_client import Lab

Remote = Callable[..., str]

RECEIVER = """python3 -c '
import socket, sys, threading, time
listener = socket.create_server(("", 7000))
print("ready", flush=True)
got = []
def take(line):
    while data := line.recv(1 << 20): got.append((time.monotonic(), len(data)))
threads = []
for _ in range(%d):
    threads.append(threading.Thread(target=take, args=listener.accept()[:1]))
    threads[-1].start()
for thread in threads: thread.join()
print(sum(n for _, n in got), max(t for t, _ in got) - min(t for t, _ in got))
'"""
SENDER = """python3 -c '
import socket, time
line = socket.create_connection(("%s", 7000), timeout=20)
end = time.monotonic() + 1.5
while time.monotonic() < end: line.sendall(bytes(65536))
'"""
DATAGRAMS = """python3 -c '
import socket, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(20000):
    line.sendto(bytes(100), ("%s", 7001))
    if i %% 100 == 0: time.sleep(0.001)
time.sleep(0.3)
'"""
COUNTERS = "cat /sys/class/net/eth0/statistics/{rx,tx}_{packets,bytes}"


@pytest.fixture(autouse=True)
def as_before(lab: Lab) -> Iterator[None]:
    yield
    lab.shape(NetworkCondition(), 1000)


def counters(lab: Lab, name: str, remote: Remote) -> list[int]:
    return [int(word) for word in remote(lab, name, f"bash -c '{COUNTERS}'").split()]


def rate_mbit(lab: Lab, remote: Remote, senders: list[str], receiver: str) -> float:
    """What a host really receives while others send all they can."""
    heard = remote(lab, receiver, RECEIVER % len(senders), wait=False)
    ready = "until ss -ltn | grep -q :7000; do sleep 0.05; done"
    remote(lab, receiver, f"timeout 20 bash -c '{ready}'")
    sent = [remote(lab, name, SENDER % lab.data_address(receiver), wait=False) for name in senders]
    for each in sent:
        each()  # type: ignore[operator]
    size, seconds = heard().split()[1:]  # type: ignore[operator]
    assert int(size) > 1_000_000, "hardly anything was sent"
    return int(size) * 8 / float(seconds) / 1e6


def test_the_rate_holds_on_the_way_out(lab: Lab, remote: Remote) -> None:
    assert lab.shape(NetworkCondition(rate_mbit=100), 1000) == {"rate": "tbf", "congestion": "cubic by route"}
    assert rate_mbit(lab, remote, ["lab1"], "lab2") < 120


def test_the_rate_holds_on_the_way_in_too(lab: Lab, remote: Remote) -> None:
    lab.shape(NetworkCondition(rate_mbit=100), 1000)
    assert rate_mbit(lab, remote, ["lab1", "lab3"], "lab2") < 120


def test_loss_is_per_packet_and_the_sender_does_not_know(lab: Lab, remote: Remote) -> None:
    how = lab.shape(NetworkCondition(loss_pct=5), 1000)
    assert how["rate"] == "tbf" and how["loss"] in ("netem", "nft")
    before = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    remote(lab, "lab1", DATAGRAMS % lab.data_address("lab2"))
    after = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    sent = after[0][2] - before[0][2]
    received = after[1][0] - before[1][0]
    assert sent >= 20000
    assert 0.04 < 1 - received / sent < 0.06  # six times the standard deviation


def test_packets_have_wire_size_where_some_are_lost(lab: Lab, remote: Remote) -> None:
    largest = {}
    for loss in (0.0, 0.5):
        lab.shape(NetworkCondition(loss_pct=loss), 1000)
        before = counters(lab, "lab1", remote)
        rate_mbit(lab, remote, ["lab1"], "lab2")
        after = counters(lab, "lab1", remote)
        largest[loss] = (after[3] - before[3]) / (after[2] - before[2])
    assert largest[0.5] <= 1514 < largest[0.0]


def test_a_shape_replaces_the_one_before_entirely(lab: Lab, remote: Remote) -> None:
    lab.shape(NetworkCondition(rate_mbit=10, loss_pct=50), 1000)
    assert "rate 10Mbit" in remote(lab, "lab1", "tc qdisc show dev eth0")
    assert lab.shape(NetworkCondition(), 200)["rate"] == "tbf"
    assert "rate 200Mbit" in remote(lab, "lab1", "tc qdisc show dev eth0")
    before = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    remote(lab, "lab1", DATAGRAMS % lab.data_address("lab2"))
    after = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    assert after[1][0] - before[1][0] >= after[0][2] - before[0][2] - 5


def test_a_rate_that_cannot_be_promised_is_not_set_and_it_says_so(lab: Lab, remote: Remote) -> None:
    how = lab.shape(NetworkCondition(), 40_000)
    assert how["rate"].startswith("none: 40000 Mbit/s is above 5000")
    assert "tbf" not in remote(lab, "lab1", "tc qdisc show dev eth0")
    assert lab.shape(NetworkCondition(), None)["rate"] == "none"


ECHO = """python3 -c '
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("", 7002))
print("ready", flush=True)
for _ in range(41):
    data, sender = line.recvfrom(100)
    line.sendto(data, sender)
'"""
ROUND_TRIPS = """python3 -c '
import socket, statistics, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(5)
took = []
for _ in range(41):
    began = time.monotonic()
    line.sendto(b"x", ("%s", 7002))
    line.recv(100)
    took.append(1000 * (time.monotonic() - began))
    time.sleep(0.005)
print(statistics.median(took[1:]))
'"""


def round_trip_ms(lab: Lab, remote: Remote) -> float:
    """The median; the first one also waits for the hardware address."""
    heard = remote(lab, "lab2", ECHO, wait=False)
    remote(lab, "lab2", "timeout 20 bash -c 'until ss -lun | grep -q :7002; do sleep 0.05; done'")
    found = float(remote(lab, "lab1", ROUND_TRIPS % lab.data_address("lab2")))
    heard()  # type: ignore[operator]
    return found


@pytest.mark.parametrize("delay_ms", [1.0, 5.0, 20.0])
def test_a_delay_is_real(delay_ms: float, lab: Lab, remote: Remote) -> None:
    how = lab.shape(NetworkCondition(delay_ms=delay_ms), 1000)
    assert how["delay"] in ("netem", "relay") and how["rate"] == "tbf"
    assert 2 * delay_ms <= round_trip_ms(lab, remote) < 2 * delay_ms + 3  # the relay shares two busy processors
    lab.shape(NetworkCondition(), 1000)
    assert round_trip_ms(lab, remote) < 2 * delay_ms


def test_delay_loss_and_rate_at_once(lab: Lab, remote: Remote) -> None:
    how = lab.shape(NetworkCondition(delay_ms=5, loss_pct=5, rate_mbit=100), 1000)
    assert how["rate"] == "tbf" and {how["delay"], how["loss"]} in ({"netem"}, {"relay", "nft"})
    before = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    remote(lab, "lab1", DATAGRAMS % lab.data_address("lab2"))
    after = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    assert 0.04 < 1 - (after[1][0] - before[1][0]) / (after[0][2] - before[0][2]) < 0.06
    lab.shape(NetworkCondition(delay_ms=5, rate_mbit=100), 1000)
    assert rate_mbit(lab, remote, ["lab1"], "lab2") < 120
    assert round_trip_ms(lab, remote) >= 10


def test_a_revived_host_has_the_delay_again(lab: Lab, remote: Remote) -> None:
    lab.shape(NetworkCondition(delay_ms=10), 1000)
    lab.kill_host("lab2")
    lab.revive_host("lab2")
    assert 20 <= round_trip_ms(lab, remote) < 23


CONGESTION = """python3 -c '
import socket
line = socket.create_connection(("%s", 7000), timeout=20)
print(line.getsockopt(socket.IPPROTO_TCP, 13, 16).partition(bytes(1))[0].decode())
'"""


def test_congestion_control_is_cubic_unless_another_is_asked_for(lab: Lab, remote: Remote) -> None:
    known = remote(lab, "lab1", "cat /proc/sys/net/ipv4/tcp_available_congestion_control").split()
    for asked in (None, *(name for name in CONGESTION_CONTROLS if name in known)):
        how = lab.shape(NetworkCondition(congestion=asked), 1000)
        assert how["congestion"] == f"{asked or 'cubic'} by route"
        heard = remote(lab, "lab2", RECEIVER % 1, wait=False)
        remote(lab, "lab2", "timeout 20 bash -c 'until ss -ltn | grep -q :7000; do sleep 0.05; done'")
        assert remote(lab, "lab1", CONGESTION % lab.data_address("lab2")).split() == [asked or "cubic"]
        with pytest.raises(AssertionError):  # it received nothing, and has no rate
            heard()  # type: ignore[operator]


def test_a_cut_data_link_cuts_data_and_not_ssh(lab: Lab, remote: Remote) -> None:
    reach = f"timeout 4 bash -c 'exec 3<>/dev/tcp/{lab.data_address('lab1')}/7003' 2>&1; true"
    assert "refused" in remote(lab, "lab2", reach)
    lab.set_link("lab2", up=False)
    assert remote(lab, "lab2", "cat /sys/class/net/eth0/carrier").split() == ["0"]
    assert "refused" not in remote(lab, "lab2", reach)
    lab.set_link("lab2", up=True)
    assert "refused" in remote(lab, "lab2", reach)


def test_a_cut_management_link_loses_the_host_and_gives_it_back(lab: Lab) -> None:
    lab.set_link("lab3", up=False, which="mgmt")
    with pytest.raises(HostLost, match="lab3"):
        lab.connect("lab3", timeout_s=1)
    lab.set_link("lab3", up=True, which="mgmt")
    lab.connect("lab3").close()


def test_a_cut_link_is_still_cut_when_its_host_comes_back(lab: Lab, remote: Remote) -> None:
    lab.kill_host("lab3")
    lab.set_link("lab3", up=False)
    lab.revive_host("lab3")
    assert remote(lab, "lab3", "cat /sys/class/net/eth0/carrier").split() == ["0"]
    lab.set_link("lab3", up=True)
