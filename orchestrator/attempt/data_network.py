"""The data network of a run: addresses, where traffic is read, network conditions, and the probe that measures them.

A condition is set when it changes, probed once, and recorded as measured. In the lab its supervisor sets it. On real
hosts `tc` does, as root or through `sudo -n`; the agent removes it, whatever ends the sweep.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.manifest import AS_PROBED, BY_ROUTE, CONGESTION, CONTAINER
from driple.contracts.protocol import requests
from driple.contracts.run_spec import NetworkCondition, RunSpec
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.failure import PermanentError
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.agent_client import AgentClient, Clients
from driple.orchestrator.netem import netem_words

LOOPBACK = "127.0.0.1"
LOOPBACK_NIC = "lo"
FLOWS = "flows"
PROBE_S = 0.25
PROBE_PACKETS = 200
LOSS_PACKETS = 2000  # if loss was requested: enough for an error of a quarter at 1 %
PROBE_PAYLOAD = 1000
NOTHING = NetworkCondition()
ENOUGH, TOO_MUCH = 0.5, 1.25  # the measured rate of a link that is as asked for, as a share of what was asked for
MOST_PROBES = 4  # other work on the hosts slows a probe
# Lost datagrams: the deviation of a count by chance, and what busy hosts may lose themselves, in percent.
CHANCE, BUSY_LOSS_PCT = 5.0, 2.0
# The measured round trip as a share of twice the delay, and what the way itself may add to it in ms.
LEAST_DELAY, MOST_BEYOND_MS = 0.9, 5.0
_OWN_QDISCS = ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "noop", "cake")
"""Default queueing disciplines of a kernel, which it restores by itself."""

log = logging.getLogger(__name__)


# Fails only if ours is still there: `del` also fails if there was none.
_TAKE_OFF = (
    'nic=$1; shift; "$@" del dev "$nic" root 2>/dev/null; ! tc qdisc show dev "$nic" root | grep -Eq "netem|tbf"'
)


class Shaper:
    """Sets the network condition of the hosts of a run. This one is for hosts without a link of their own."""

    def shape(self, condition: NetworkCondition, setting: Setting, clients: Clients) -> dict[str, str]:
        """Sets a condition; returns the mechanism of each part."""
        if condition != NOTHING:
            raise PermanentError(f"network condition {condition.label}: these hosts have no link; use the lab")
        return {}

    def clear(self, clients: Clients) -> None:
        """Removes the condition."""

    def pairs_at_once(self, hosts: int) -> int:
        """Number of pairs of hosts that a probe can use in parallel without becoming the bottleneck."""
        return 1


@dataclass(frozen=True)
class LinkState:
    """The links of the hosts of a run."""

    measured: dict[str, float] = field(default_factory=dict)
    done_by: dict[str, str] = field(default_factory=dict)
    """What made each part of the condition."""
    mismatch: str | None = None
    """Why the links are not those of the setting; None if they are, or if that cannot be told."""


class Links:
    """The data network of a sweep."""

    def __init__(self, shaper: Shaper, hosts: Mapping[str, HostSpec]) -> None:
        self._shaper = shaper
        self._hosts = hosts
        self._measured: dict[Any, LinkState] = {}
        self._last: dict[str, Any] = {}

    def data_address(self, setting: Setting, client: AgentClient) -> str:
        """The address at which other tasks reach those of a host."""
        if setting.one_machine:
            return LOOPBACK
        host = self._hosts[client.name]
        link = host.networks.get(setting.network, Link())
        return link.address or client.facts.ssh_address or host.address

    def traffic_source(self, setting: Setting, client: AgentClient, tasks: int, way: str) -> str:
        """The source of a task's traffic: its own interface, or the sum of its TCP flows."""
        if way == CONTAINER:
            return "nic:eth0"
        if tasks > 1 or self.data_address(setting, client) == LOOPBACK:
            return FLOWS
        nic = self.data_nic(setting, client)
        return FLOWS if nic is None else f"nic:{nic}"

    def data_nic(self, setting: Setting, client: AgentClient) -> str | None:
        """The interface of a host on the data network; None if it is not known. Raises HostError for a wrong one."""
        address = self.data_address(setting, client)
        if address == LOOPBACK:
            return LOOPBACK_NIC
        nics = {} if client.info is None else client.info.nics
        by_address = next((name for name, nic in nics.items() if nic is not None and address in nic.addresses), None)
        nic = self._hosts[client.name].networks.get(setting.network, Link()).nic or by_address
        if by_address is not None and nic != by_address:
            raise HostError(
                f"{client.name}: nic is {nic!r} in the inventory, but {address} is the address of {by_address!r}"
            )
        if nic is not None and nics and nic not in nics:
            raise HostError(f"{client.name}: has no interface {nic!r} (it has {', '.join(nics)}); see the inventory")
        return nic

    def apply(self, spec: RunSpec, clients: Clients) -> LinkState:
        """Sets the condition of a run unless it is set, and measures the links."""
        if spec.setting.one_machine:
            return LinkState()
        hosts = tuple(sorted(clients))
        key = (hosts, spec.setting.network, spec.network, tuple(id(clients[name]) for name in hosts))
        if key not in self._measured or any(self._last.get(name) != key for name in hosts):
            done_by = self._shaper.shape(spec.network, spec.setting, clients)
            measured, used = self._probe(spec, clients)
            mismatch = link_mismatch(spec, measured, used)
            if mismatch is not None:
                log.warning("%s: %s; datasets leave out runs on such links", spec.setting, mismatch)
            self._measured[key] = LinkState(measured, _with_congestion(done_by, used), mismatch)
            for name in hosts:
                self._last[name] = key
        return self._measured[key]

    def _probe(self, spec: RunSpec, clients: Clients) -> tuple[dict[str, float], set[str]]:
        """What the links do, and the congestion controls that were used; again if they are not as asked for."""
        addresses = {name: self.data_address(spec.setting, clients[name]) for name in clients}
        packets = LOSS_PACKETS if spec.network.loss_pct else PROBE_PACKETS
        at_once = self._shaper.pairs_at_once(len(clients))
        best: tuple[dict[str, float], set[str]] = {}, set()
        for _ in range(MOST_PROBES):
            found = probe(clients, addresses, packets=packets, at_once=at_once)
            if not found[0] or link_mismatch(spec, *found) is None:
                return found
            best = max(best, found, key=lambda each: each[0].get("rate_mbit", 0.0))
        return best

    def clear(self, clients: Clients) -> None:
        self._shaper.clear({name: client for name, client in clients.items() if client.lost is None})


def _with_congestion(done_by: Mapping[str, str], used: Collection[str]) -> dict[str, str]:
    """Also says what TCP used where nothing set it, as the probe saw it."""
    seen = {CONGESTION: f"{' and '.join(sorted(used))} {AS_PROBED}"} if used else {}
    return {**done_by, **({} if done_by.get(CONGESTION, "").endswith(BY_ROUTE) else seen)}


def link_mismatch(spec: RunSpec, measured: Mapping[str, float], congestion: Collection[str] = ()) -> str | None:
    """Why measured links are not those that a run asks for; None if they are, or were not measured.

    A short stream does not reach the rate of a link with loss or delay.
    """
    condition = spec.network
    if condition.congestion and congestion and set(congestion) != {condition.congestion}:
        return f"TCP uses {' and '.join(sorted(congestion))} instead of {condition.congestion}"
    return _wrong_rate(spec, measured) or _wrong_loss(condition, measured) or _wrong_delay(condition, measured)


def _wrong_rate(spec: RunSpec, measured: Mapping[str, float]) -> str | None:
    condition = spec.network
    wanted = condition.rate_mbit or float(spec.setting.link_mbit or 0)
    rate = measured.get("rate_mbit")
    if not wanted or rate is None:
        return None
    slow = rate < ENOUGH * wanted and not condition.loss_pct and not condition.delay_ms
    if slow or rate > TOO_MUCH * wanted:
        return f"links carry {rate:.0f} Mbit/s instead of {wanted:g}"
    return None


def _wrong_loss(condition: NetworkCondition, measured: Mapping[str, float]) -> str | None:
    """A small loss of few datagrams may be missing by chance."""
    loss_pct, count = measured.get("loss_pct"), measured.get("probed_packets")
    if loss_pct is None or not count:
        return None
    wanted = condition.loss_pct
    chance_pct = CHANCE * math.sqrt(wanted * (100 - wanted) / count)
    if wanted - chance_pct <= loss_pct <= wanted + chance_pct + BUSY_LOSS_PCT:
        return None
    return f"links lose {loss_pct:.3g} % of the packets instead of {wanted:g} %"


def _wrong_delay(condition: NetworkCondition, measured: Mapping[str, float]) -> str | None:
    wanted_ms, round_trip_ms = 2 * condition.delay_ms, measured.get("rtt_ms")
    if not wanted_ms or round_trip_ms is None:
        return None
    if LEAST_DELAY * wanted_ms <= round_trip_ms <= wanted_ms + max(MOST_BEYOND_MS, condition.delay_ms):
        return None
    return f"a round trip takes {round_trip_ms:.3g} ms instead of {wanted_ms:g} ms"


def probe(
    clients: Clients, addresses: Mapping[str, str], *, packets: int, at_once: int
) -> tuple[dict[str, float], set[str]]:
    """Measures the link from each host to the next with so many datagrams, on `at_once` pairs in parallel.

    Returns:
        Rate, loss and round trip, and the congestion controls of the streams.
    """
    names = [name for name in clients if addresses.get(name)]
    if len(names) < 2:
        return {}, set()

    def one(pair: tuple[str, str]) -> tuple[float, int, int, float, str]:
        sender, hearer = pair
        at = clients[hearer].ask(requests.Listen())
        send = requests.Send(
            address=addresses[hearer], port=at.tcp_port, seconds=PROBE_S, packets=packets, payload=PROBE_PAYLOAD
        )
        told = clients[sender].ask(send, timeout_s=60.0)
        got = clients[hearer].ask(requests.Heard(token=at.token), timeout_s=60.0)
        rate = got.tcp_bytes * 8e-6 / got.tcp_seconds if got.tcp_seconds else 0.0
        return rate, told.packets, got.udp_packets, told.rtt_ms, told.congestion

    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    with ThreadPoolExecutor(max_workers=max(1, min(at_once, len(pairs)))) as pool:
        # Even pairs first, so that a host sends or receives once at a time (except the last of an odd ring).
        found = list(pool.map(one, pairs[::2] + pairs[1::2]))
    rates, sent, heard, round_trips, congestion = zip(*found, strict=True)
    measured = {
        "rate_mbit": statistics.median(rates),
        "rate_mbit_least": min(rates),
        "loss_pct": 100.0 * (1 - sum(heard) / sum(sent)) if sum(sent) else 0.0,
        "probed_packets": float(sum(sent)),
    }
    if any(round_trips):
        measured["rtt_ms"] = statistics.median(round_trips)
    return measured, {name for name in congestion if name}


class TcShaper(Shaper):
    """Real hosts: `tc` on outgoing traffic. Needs root, or `sudo -n tc`."""

    def __init__(self, hosts: Mapping[str, HostSpec]) -> None:
        self._hosts = hosts

    def shape(self, condition: NetworkCondition, setting: Setting, clients: Clients) -> dict[str, str]:
        self.clear(clients)
        if condition == NOTHING:
            return {}
        try:
            by = {name: self._make(condition, setting, client) for name, client in clients.items()}
        except RunFailed:
            with suppress(RunFailed):  # the cause is the better message
                self.clear(clients)
            raise
        return {part: " and ".join(sorted({ways[part] for ways in by.values()})) for part in condition.parts}

    def clear(self, clients: Clients) -> None:
        for name, client in clients.items():
            failed = client.ask(requests.UndoNow(), timeout_s=30.0).failed
            if failed:
                raise HostError(f"{name}: {', '.join(failed)} could not be removed; remove it by hand (tc qdisc show)")

    def pairs_at_once(self, hosts: int) -> int:
        return hosts // 2

    def _make(self, condition: NetworkCondition, setting: Setting, client: AgentClient) -> dict[str, str]:
        """Sets the condition on one host; returns the mechanism of each part."""
        nic = self._hosts[client.name].networks.get(setting.network, Link()).nic
        if nic is None:
            raise PermanentError(
                f"{client.name}: a network condition needs the name of its interface; add networks: "
                f"{{{setting.network}: {{nic: ...}}}} to the inventory"
            )
        ways = self._set_qdisc(condition, nic, client)
        if condition.congestion is not None:
            ways[CONGESTION] = self._set_congestion(condition.congestion, nic, client)
        return ways

    def _set_qdisc(self, condition: NetworkCondition, nic: str, client: AgentClient) -> dict[str, str]:
        parts = [part for part in condition.parts if part != CONGESTION]
        if not parts:
            return {}
        tc = [*_rights(client), "tc", "qdisc"]
        there = client.ask(requests.Run(argv=("tc", "qdisc", "show", "dev", nic, "root"))).stdout.split()
        if len(there) > 1 and there[1] not in _OWN_QDISCS:
            raise PermanentError(
                f"{client.name}: {nic} already has a qdisc ({there[1]}), which could not be restored "
                "afterwards; remove it, or leave network: out"
            )
        client.ask(requests.UndoLater(name=f"tc of {nic}", argv=("sh", "-c", _TAKE_OFF, "sh", nic, *tc)))
        words = ""
        for way, arguments in tc_ways(condition):
            done = client.ask(requests.Run(argv=(*tc, "replace", "dev", nic, "root", *arguments), limit_s=20.0))
            if done.exit_code == 0:
                return dict.fromkeys(parts, way)
            words = words or " ".join(done.stderr.split())
        raise PermanentError(
            f"{client.name}: cannot make the network condition {condition.label} ({words}); it needs tc as root or by "
            "`sudo -n tc`, and a kernel with netem; leave network: out otherwise"
        )

    def _set_congestion(self, congestion: str, nic: str, client: AgentClient) -> str:
        """By the routes of the interface to its own network, so that no other traffic changes."""
        ip = [*_rights(client), "ip", "route", "replace"]
        shown = client.ask(requests.Run(argv=("ip", "route", "show", "dev", nic, "scope", "link"))).stdout
        routes = [line.partition(" congctl ")[0].split() for line in shown.splitlines() if line.strip()]
        if not routes:
            raise PermanentError(f"{client.name}: {nic} has no route to a network of its own; leave congestion out")
        for number, route in enumerate(routes):
            back = (*ip, *route, "dev", nic)
            client.ask(requests.UndoLater(name=f"congestion of {nic} {number}", argv=back))
            done = client.ask(requests.Run(argv=(*back, "congctl", congestion), limit_s=20.0))
            if done.exit_code:
                raise PermanentError(
                    f"{client.name}: cannot use {congestion} on {nic} ({' '.join(done.stderr.split())}); it needs "
                    f"ip as root or by `sudo -n ip`, and the kernel's module tcp_{congestion}"
                )
        return f"{congestion} {BY_ROUTE}"


def _rights(client: AgentClient) -> list[str]:
    return [] if client.facts.uid == 0 else ["sudo", "-n"]


def tc_ways(condition: NetworkCondition) -> list[tuple[str, list[str]]]:
    """Arguments of tc for a condition, best first. A kernel without netem can limit the rate."""
    words = netem_words(condition)
    rate = ["rate", f"{condition.rate_mbit:g}mbit"] if condition.rate_mbit is not None else []
    ways = [("netem", ["netem", *rate, *words])]
    if condition.rate_mbit is not None and not words:
        # A millisecond of the rate, and room for a whole offloaded segment.
        burst = max(64 * 1024, int(condition.rate_mbit * 125))
        ways.append(("tbf", ["tbf", *rate, "burst", str(burst), "latency", "50ms"]))
    return ways
