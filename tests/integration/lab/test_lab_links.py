"""Links: rate, loss, delay, cables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from driple.contracts.errors import HostLost, RunFailed
from driple.contracts.run_spec import NetworkCondition
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
    assert lab.shape(NetworkCondition(rate_mbit=100), 1000) == {"rate": "tbf"}
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
    assert lab.shape(NetworkCondition(), 200) == {"rate": "tbf"}
    assert "rate 200Mbit" in remote(lab, "lab1", "tc qdisc show dev eth0")
    before = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    remote(lab, "lab1", DATAGRAMS % lab.data_address("lab2"))
    after = counters(lab, "lab1", remote), counters(lab, "lab2", remote)
    assert after[1][0] - before[1][0] >= after[0][2] - before[0][2] - 5


def test_a_rate_that_cannot_be_promised_is_not_set_and_it_says_so(lab: Lab, remote: Remote) -> None:
    how = lab.shape(NetworkCondition(), 40_000)
    assert how["rate"].startswith("none: 40000 Mbit/s is above 5000")
    assert "tbf" not in remote(lab, "lab1", "tc qdisc show dev eth0")
    assert lab.shape(NetworkCondition(), None) == {"rate": "none"}


def test_a_delay_is_real_or_refused_with_nothing_changed(lab: Lab, remote: Remote) -> None:
    lab.shape(NetworkCondition(rate_mbit=50), 1000)
    try:
        how = lab.shape(NetworkCondition(delay_ms=20, loss_pct=1), 1000)
    except RunFailed as refusal:
        assert "needs netem" in str(refusal)
        assert "rate 50Mbit" in remote(lab, "lab1", "tc qdisc show dev eth0")
        assert lab.describe()["shape"]["how"] == {"rate": "tbf"}
    else:
        assert how == {"rate": "tbf", "loss": "netem", "delay": "netem"}
        assert "netem" in remote(lab, "lab1", "tc qdisc show dev eth0")


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
