from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.manifest import CONTAINER, WARM
from driple.contracts.protocol import requests
from driple.contracts.protocol.message import Message
from driple.contracts.run_spec import Measurement, NetworkCondition, RunSpec, Workload
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.data_network import (
    MOST_PROBES,
    NOTHING,
    Links,
    Shaper,
    TcShaper,
    link_mismatch,
    probe,
    tc_ways,
)
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.agent_client import AgentClient

LINK = Setting.parse("cpu-p1w1-1g")
ONE_MACHINE = Setting.parse("cpu-p1w1-pcie")


class FakeClient:
    """Answers as an agent would; the real messages are tested with real agents."""

    def __init__(self, name: str, nics: dict[str, tuple[str, ...]] | None = None, refuse: tuple[str, ...] = ()) -> None:
        """`nics` are the addresses of the interfaces."""
        self.name = name
        self.facts = SimpleNamespace(ssh_address=f"192.0.2.{name[-1]}", uid=0)
        self.info = None if nics is None else SimpleNamespace(nics={key: nic(*nics[key]) for key in nics})
        self.asked: list[requests.Request[Any]] = []
        self._refuse = refuse
        self.qdisc = "qdisc fq_codel 0: root refcnt 2"
        self.heard_packets = 200
        self.route = ""

    def ask(self, request: requests.Request[Any], *, timeout_s: float = 1.0) -> Message:
        self.asked.append(request)
        if isinstance(request, requests.Run):
            if request.argv[:3] == ("ip", "route", "show"):
                return requests.RunAnswer(exit_code=0, stdout=self.route, stderr="")
            if "show" in request.argv:
                return requests.RunAnswer(exit_code=0, stdout=self.qdisc, stderr="")
            refused = any(word in request.argv for word in self._refuse)
            words = "qdisc kind is unknown" if refused else ""
            return requests.RunAnswer(exit_code=2 if refused else 0, stdout="", stderr=words)
        answers: dict[str, Message] = {
            "undo_now": requests.UndoNowAnswer(failed=()),
            "undo_later": requests.Done(),
            "listen": requests.ListenAnswer(tcp_port=1, udp_port=1, token="t"),
            "send": requests.SendAnswer(
                bytes=100, seconds=0.1, packets=getattr(request, "packets", 0), rtt_ms=0.4, congestion="cubic"
            ),
            "heard": requests.HeardAnswer(tcp_bytes=12_500_000, tcp_seconds=0.1, udp_packets=self.heard_packets),
        }
        return answers[request.do]


def nic(*addresses: str) -> requests.NicInfo:
    return requests.NicInfo(up=True, speed_mbit=None, addresses=addresses, mtu=1500)


def clients(*fakes: FakeClient) -> Mapping[str, AgentClient]:
    return cast("Mapping[str, AgentClient]", {fake.name: fake for fake in fakes})


def host(name: str, **link: str) -> HostSpec:
    return HostSpec(name=name, address=name, networks={"1g": Link(**link)} if link else {})


def spec(network: NetworkCondition = NOTHING) -> RunSpec:
    return RunSpec(
        setting=LINK,
        workload=Workload("lenet", "imagenet", 2, image_size=32),
        measurement=Measurement(steps=5),
        together=(("ps:0",), ("worker:0",)),
        network=network,
    )


def test_an_address_is_the_inventorys_or_that_of_the_connection() -> None:
    links = Links(Shaper(), {"h1": host("h1", address="198.51.100.1"), "h2": host("h2")})
    first, second = FakeClient("h1"), FakeClient("h2")
    assert links.data_address(LINK, cast("AgentClient", first)) == "198.51.100.1"
    assert links.data_address(LINK, cast("AgentClient", second)) == "192.0.2.2"
    assert links.data_address(ONE_MACHINE, cast("AgentClient", first)) == "127.0.0.1"


@pytest.mark.parametrize(
    ("setting", "link", "tasks", "way", "expected"),
    [
        (LINK, {"nic": "eth1"}, 1, WARM, "nic:eth1"),
        (LINK, {"nic": "eth7", "address": "198.51.100.7"}, 1, WARM, "nic:eth7"),
        (LINK, {}, 1, WARM, "nic:eth1"),  # the one that has the address
        (LINK, {"nic": "eth7"}, 2, WARM, "flows"),
        (ONE_MACHINE, {"nic": "eth7"}, 1, WARM, "flows"),
        (ONE_MACHINE, {"nic": "eth7"}, 3, CONTAINER, "nic:eth0"),
    ],
)
def test_whose_traffic_is_read_where(
    setting: Setting, link: dict[str, str], tasks: int, way: str, expected: str
) -> None:
    links = Links(Shaper(), {"h1": host("h1", **link)})
    nics = {"lo": ("127.0.0.1",), "eth1": ("192.0.2.1",), "eth7": ()}
    client = cast("AgentClient", FakeClient("h1", nics))
    assert links.traffic_source(setting, client, tasks, way) == expected


def test_an_interface_that_has_not_the_address_is_told() -> None:
    links = Links(Shaper(), {"h1": host("h1", nic="eth7")})
    nics: dict[str, tuple[str, ...]] = {"eth1": ("192.0.2.1",), "eth7": ()}
    with pytest.raises(HostError, match="'eth7' in the inventory.*'eth1'"):
        links.traffic_source(LINK, cast("AgentClient", FakeClient("h1", nics)), 1, WARM)


def test_a_qdisc_of_somebody_else_is_left_alone() -> None:
    client = FakeClient("h1")
    client.qdisc = "qdisc tbf 8001: root rate 1Gbit"
    with pytest.raises(RunFailed, match="already.*tbf"):
        TcShaper({"h1": host("h1", nic="eth1")}).shape(NetworkCondition(rate_mbit=50), LINK, clients(client))
    assert not any(isinstance(request, requests.UndoLater) for request in client.asked)


def test_an_interface_that_is_not_there_is_told() -> None:
    links = Links(Shaper(), {"h1": host("h1", nic="eth9")})
    client = cast("AgentClient", FakeClient("h1", {"lo": (), "eth0": ()}))
    with pytest.raises(HostError, match="h1: has no interface 'eth9'.*eth0"):
        links.traffic_source(LINK, client, 1, WARM)


def test_a_condition_is_made_and_probed_when_it_changes() -> None:
    links = Links(
        TcShaper({name: host(name, nic="eth1") for name in ("h1", "h2")}), {"h1": host("h1"), "h2": host("h2")}
    )
    first, second = FakeClient("h1"), FakeClient("h2")
    both = clients(first, second)
    lossy = spec(NetworkCondition(loss_pct=1.0))
    first.heard_packets = second.heard_packets = 1982  # of LOSS_PACKETS
    found = links.apply(lossy, both)
    assert found.done_by == {"loss": "netem", "congestion": "cubic as probed"} and found.mismatch is None
    assert found.measured["rate_mbit"] == pytest.approx(1000) and found.measured["loss_pct"] == pytest.approx(0.9)
    assert found.measured["rtt_ms"] == pytest.approx(0.4)
    before = len(first.asked)
    assert links.apply(lossy, both) == found and len(first.asked) == before
    first.heard_packets = second.heard_packets = 200
    links.apply(spec(), both)
    assert requests.UndoNow() in first.asked[before:]
    assert not any(isinstance(request, requests.Run) for request in first.asked[before:])


@pytest.mark.parametrize(
    ("condition", "rate", "congestion", "mismatch"),
    [
        (NOTHING, 940.0, "bbr", None),
        (NOTHING, 600.0, "cubic", None),  # other work on the hosts slows a probe
        (NOTHING, 400.0, "cubic", "links carry 400 Mbit/s instead of 1000"),
        (NOTHING, 9400.0, "cubic", "links carry 9400 Mbit/s instead of 1000"),
        (NetworkCondition(rate_mbit=100), 940.0, "cubic", "links carry 940 Mbit/s instead of 100"),
        (NetworkCondition(delay_ms=20), 200.0, "cubic", None),  # a short stream does not reach the rate
        (NetworkCondition(loss_pct=2), 50.0, "cubic", None),
        (NetworkCondition(congestion="reno"), 940.0, "bbr", "TCP uses bbr instead of reno"),
    ],
)
def test_links_that_are_not_as_asked_for(
    condition: NetworkCondition, rate: float, congestion: str, mismatch: str | None
) -> None:
    assert link_mismatch(spec(condition), {"rate_mbit": rate}, {congestion}) == mismatch


@pytest.mark.parametrize(
    ("condition", "measured", "mismatch"),
    [
        (NetworkCondition(loss_pct=2), {"loss_pct": 1.6}, None),
        (NetworkCondition(loss_pct=2), {"loss_pct": 3.9}, None),  # busy hosts lose datagrams themselves
        (NetworkCondition(loss_pct=2), {"loss_pct": 0.0}, "links lose 0 % of the packets instead of 2 %"),
        (NetworkCondition(loss_pct=0.1), {"loss_pct": 0.0}, None),  # eight are expected: chance
        (NetworkCondition(loss_pct=0.1), {"loss_pct": 4.0}, "links lose 4 % of the packets instead of 0.1 %"),
        (NOTHING, {"loss_pct": 0.5}, None),
        (NOTHING, {"loss_pct": 5.0}, "links lose 5 % of the packets instead of 0 %"),
        (NetworkCondition(delay_ms=5), {"rtt_ms": 10.4}, None),
        (NetworkCondition(delay_ms=5), {"rtt_ms": 0.3}, "a round trip takes 0.3 ms instead of 10 ms"),
        (NetworkCondition(delay_ms=5), {"rtt_ms": 40.0}, "a round trip takes 40 ms instead of 10 ms"),
        (NOTHING, {"rtt_ms": 40.0}, None),  # a setting says nothing about delay
        (NetworkCondition(delay_ms=5), {}, None),
    ],
)
def test_loss_and_delay_that_are_not_as_asked_for(
    condition: NetworkCondition, measured: dict[str, float], mismatch: str | None
) -> None:
    told = {"rate_mbit": 940.0, "probed_packets": 8000.0, **measured}
    assert link_mismatch(spec(condition), told, {"cubic"}) == mismatch


def test_a_slow_link_is_probed_again_before_it_is_called_a_mismatch() -> None:
    links = Links(Shaper(), {"h1": host("h1"), "h2": host("h2")})
    both = FakeClient("h1"), FakeClient("h2")
    found = links.apply(replace(spec(), setting=Setting.parse("cpu-p1w1-10g")), clients(*both))
    assert found.mismatch == "links carry 1000 Mbit/s instead of 10000"
    assert sum(isinstance(request, requests.Send) for request in both[0].asked) == MOST_PROBES


def test_congestion_control_is_set_by_the_routes_of_the_interface_and_taken_off() -> None:
    client = FakeClient("h1")
    client.route = "10.0.0.0/24 proto kernel src 10.0.0.1 \n"
    done = TcShaper({"h1": host("h1", nic="eth1")}).shape(NetworkCondition(congestion="reno"), LINK, clients(client))
    assert done == {"congestion": "reno by route"}
    words = ("ip", "route", "replace", "10.0.0.0/24", "proto", "kernel", "src", "10.0.0.1", "dev", "eth1")
    (undo,) = [request for request in client.asked if isinstance(request, requests.UndoLater)]
    assert undo.argv == words
    assert [request for request in client.asked if isinstance(request, requests.Run)][-1].argv == (
        *words,
        "congctl",
        "reno",
    )
    client = FakeClient("h1", refuse=("congctl",))
    client.route = "10.0.0.0/24 proto kernel src 10.0.0.1 \n"
    with pytest.raises(RunFailed, match="cannot use reno on eth1.*module tcp_reno"):
        TcShaper({"h1": host("h1", nic="eth1")}).shape(NetworkCondition(congestion="reno"), LINK, clients(client))


def test_what_takes_a_condition_off_is_left_with_the_host_before_it_is_made() -> None:
    client = FakeClient("h1")
    TcShaper({"h1": host("h1", nic="eth1")}).shape(NetworkCondition(rate_mbit=50), LINK, clients(client))
    order = [request.do for request in client.asked if "show" not in getattr(request, "argv", ())]
    assert order.index("undo_later") < order.index("run")
    (undo,) = [request for request in client.asked if isinstance(request, requests.UndoLater)]
    assert undo.argv[-3:] == ("eth1", "tc", "qdisc") and "del dev" in undo.argv[2]


def test_a_kernel_without_netem_can_limit_a_rate_and_no_more() -> None:
    shaper = TcShaper({"h1": host("h1", nic="eth1")})
    assert shaper.shape(NetworkCondition(rate_mbit=50), LINK, clients(FakeClient("h1", refuse=("netem",)))) == {
        "rate": "tbf"
    }
    client = FakeClient("h1", refuse=("netem",))
    with pytest.raises(RunFailed, match="unknown.*netem"):
        shaper.shape(NetworkCondition(loss_pct=1), LINK, clients(client))
    assert client.asked[-1] == requests.UndoNow()


def test_a_plain_login_asks_sudo() -> None:
    client = FakeClient("h1")
    client.facts.uid = 1000
    TcShaper({"h1": host("h1", nic="eth1")}).shape(NetworkCondition(rate_mbit=50), LINK, clients(client))
    run = [request for request in client.asked if isinstance(request, requests.Run)][-1]
    assert run.argv[:3] == ("sudo", "-n", "tc")


def test_the_words_of_tc() -> None:
    assert tc_ways(NetworkCondition(rate_mbit=100, delay_ms=2.5, loss_pct=0.1)) == [
        ("netem", ["netem", "rate", "100mbit", "delay", "2500us", "loss", "random", "0.100000%"])
    ]
    assert [way for way, _ in tc_ways(NetworkCondition(rate_mbit=100))] == ["netem", "tbf"]


def test_one_host_has_no_link_to_probe() -> None:
    assert probe(clients(FakeClient("h1")), {"h1": "192.0.2.1"}, packets=10, at_once=1) == ({}, set())
    with pytest.raises(RunFailed, match="no link"):
        Shaper().shape(NetworkCondition(loss_pct=1), LINK, {})
