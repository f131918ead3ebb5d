"""The data link of a run: addresses, whose traffic is read where, its condition, and what a probe measured of it.

A condition is applied when it changes, probed once, and recorded as it was found and not as it was asked. The lab's is
made by its keeper. On real hosts it is made by `tc`, as root or through `sudo -n`; the agent has the order to take it
off, whatever ends it.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.protocol import requests
from driple.contracts.run_spec import NetworkCondition, RunSpec
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.failure import Hopeless
from driple.orchestrator.attempt.task_command import CONTAINER
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.agent_client import AgentClient, Clients

LOOPBACK = "127.0.0.1"
FLOWS = "flows"
PROBE_S = 0.25
PROBE_PACKETS = 200
LOSS_PACKETS = 2000
"""Where loss was asked for: 1 % of them is known to a quarter."""
PROBE_PAYLOAD = 1000
NOTHING = NetworkCondition()
ENOUGH = 0.8
"""A link that carries less than this share of what it should is worth a second look, and a warning."""
_OWN_QDISCS = ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "noop", "cake")
"""What a kernel puts on an interface by itself, and puts there again when ours is taken off."""

log = logging.getLogger(__name__)


# Fails only if ours is still there: `del` also fails where it was never made.
_TAKE_OFF = (
    'nic=$1; shift; "$@" del dev "$nic" root 2>/dev/null; ! tc qdisc show dev "$nic" root | grep -Eq "netem|tbf"'
)


class Shaper(Protocol):
    """Makes a condition on the data link of every host of a run."""

    def shape(self, condition: NetworkCondition, setting: Setting, stations: Clients) -> dict[str, str]:
        """Makes it, in place of what was there; gives back what made each part."""

    def clear(self, stations: Clients) -> None:
        """Takes it off."""

    def pairs_at_once(self, hosts: int) -> int:
        """How many pairs of hosts a probe can use at a time without being its own bottleneck."""


class Links:
    """The links of one sweep."""

    def __init__(self, shaper: Shaper, hosts: Mapping[str, HostSpec]) -> None:
        self._shaper = shaper
        self._hosts = hosts
        self._measured: dict[Any, tuple[dict[str, float], dict[str, str]]] = {}
        self._last: dict[str, Any] = {}

    def data_address(self, setting: Setting, station: AgentClient) -> str:
        """Where the other tasks of a run reach those of this host."""
        if setting.one_machine:
            return LOOPBACK
        host = self._hosts[station.name]
        link = host.networks.get(setting.network, Link())
        return link.address or station.facts.ssh_address or host.address

    def traffic_source(self, setting: Setting, station: AgentClient, tasks: int, way: str) -> str:
        """Where a task's own traffic can be read: at an interface that is its own, or summed from its TCP flows."""
        if way == CONTAINER:
            return "nic:eth0"
        address = self.data_address(setting, station)
        if tasks > 1 or address == LOOPBACK:
            return FLOWS
        nics = {} if station.info is None else station.info.nics
        by_address = next((name for name, nic in nics.items() if nic is not None and address in nic.addresses), None)
        nic = self._hosts[station.name].networks.get(setting.network, Link()).nic or by_address
        if by_address is not None and nic != by_address:
            raise HostError(
                f"{station.name}: nic is {nic!r} in the inventory, but {address} is the address of {by_address!r}"
            )
        if nic is None:
            return FLOWS
        if nics and nic not in nics:
            raise HostError(f"{station.name}: has no interface {nic!r} (it has {', '.join(nics)}); mend the inventory")
        return f"nic:{nic}"

    def apply(self, spec: RunSpec, stations: Clients) -> tuple[dict[str, float], dict[str, str]]:
        """Makes the run's condition where it is not there already; what was measured, and what made it."""
        if spec.setting.one_machine:
            return {}, {}
        hosts = tuple(sorted(stations))
        key = (hosts, spec.setting.network, spec.network, tuple(id(stations[name]) for name in hosts))
        if key not in self._measured or any(self._last.get(name) != key for name in hosts):
            done_by = self._shaper.shape(spec.network, spec.setting, stations)
            addresses = {name: self.data_address(spec.setting, stations[name]) for name in hosts}
            packets = LOSS_PACKETS if spec.network.loss_pct else PROBE_PACKETS
            at_once = self._shaper.pairs_at_once(len(hosts))
            measured = probe(stations, addresses, packets=packets, at_once=at_once)
            wanted = spec.network.rate_mbit or float(spec.setting.link_mbit or 0)
            if measured and measured["rate_mbit"] < ENOUGH * wanted and not spec.network.loss_pct:
                measured = max(
                    measured,
                    probe(stations, addresses, packets=packets, at_once=at_once),
                    key=lambda found: found["rate_mbit"],
                )  # a busy moment is no slow link
                if measured["rate_mbit"] < ENOUGH * wanted:
                    log.warning(
                        "links carry %.0f Mbit/s, and not the %g of %s", measured["rate_mbit"], wanted, spec.setting
                    )
            self._measured[key] = (measured, done_by)
            for name in hosts:
                self._last[name] = key
        return self._measured[key]

    def clear(self, stations: Clients) -> None:
        """Takes every condition off."""
        self._shaper.clear({name: station for name, station in stations.items() if station.lost is None})


def probe(stations: Clients, addresses: Mapping[str, str], *, packets: int, at_once: int) -> dict[str, float]:
    """Sends from each host to the next: what the links carry and lose now.

    Args:
        stations: of the run.
        addresses: on the data link, by host.
        packets: datagrams from each; the loss of few is known badly.
        at_once: so many pairs at a time.
    """
    names = [name for name in stations if addresses.get(name)]
    if len(names) < 2:
        return {}

    def one(pair: tuple[str, str]) -> tuple[float, int, int]:
        sender, hearer = pair
        at = stations[hearer].ask(requests.Listen())
        send = requests.Send(
            address=addresses[hearer], port=at.tcp_port, seconds=PROBE_S, packets=packets, payload=PROBE_PAYLOAD
        )
        told = stations[sender].ask(send, timeout_s=60.0)
        got = stations[hearer].ask(requests.Heard(token=at.token), timeout_s=60.0)
        rate = got.tcp_bytes * 8e-6 / got.tcp_seconds if got.tcp_seconds else 0.0
        return rate, told.packets, got.udp_packets

    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    with ThreadPoolExecutor(max_workers=max(1, min(at_once, len(pairs)))) as pool:
        # Even ones first: no host sends or hears twice at a time (but for the last of an odd ring).
        found = list(pool.map(one, pairs[::2] + pairs[1::2]))
    rates = [rate for rate, _, _ in found]
    sent, heard = sum(sent for _, sent, _ in found), sum(heard for _, _, heard in found)
    return {
        "rate_mbit": statistics.median(rates),
        "rate_mbit_least": min(rates),
        "loss_pct": 100.0 * (1 - heard / sent) if sent else 0.0,
        "probed_packets": float(sent),
    }


class NoShaper:
    """For hosts that have no link of their own to condition."""

    def shape(self, condition: NetworkCondition, setting: Setting, stations: Clients) -> dict[str, str]:
        if condition != NOTHING:
            raise Hopeless(f"network condition {condition.label}: these hosts have no link to condition")
        return {}

    def clear(self, stations: Clients) -> None:
        return None

    def pairs_at_once(self, hosts: int) -> int:
        return 1


class TcShaper:
    """Real hosts: `tc` on the way out of each. Needs root there, or `sudo -n tc`."""

    def __init__(self, hosts: Mapping[str, HostSpec]) -> None:
        self._hosts = hosts

    def shape(self, condition: NetworkCondition, setting: Setting, stations: Clients) -> dict[str, str]:
        self.clear(stations)
        if condition == NOTHING:
            return {}
        try:
            by = {name: self._make(condition, setting, station) for name, station in stations.items()}
        except RunFailed:
            with suppress(RunFailed):  # the cause is the better message
                self.clear(stations)
            raise
        parts = {"rate": condition.rate_mbit, "delay": condition.delay_ms, "loss": condition.loss_pct}
        return {part: " and ".join(sorted(set(by.values()))) for part, value in parts.items() if value}

    def clear(self, stations: Clients) -> None:
        for name, station in stations.items():
            failed = station.ask(requests.UndoNow(), timeout_s=30.0).failed
            if failed:
                raise HostError(f"{name}: {', '.join(failed)} could not be taken off; do it by hand: tc qdisc show")

    def pairs_at_once(self, hosts: int) -> int:
        return hosts // 2

    def _make(self, condition: NetworkCondition, setting: Setting, station: AgentClient) -> str:
        """Makes it on one host by what its kernel has; says which."""
        nic = self._hosts[station.name].networks.get(setting.network, Link()).nic
        if nic is None:
            raise Hopeless(
                f"{station.name}: a network condition needs the name of its interface; add networks: "
                f"{{{setting.network}: {{nic: ...}}}} to the inventory"
            )
        tc = [*([] if station.facts.uid == 0 else ["sudo", "-n"]), "tc", "qdisc"]
        there = station.ask(requests.Run(argv=("tc", "qdisc", "show", "dev", nic, "root"))).stdout.split()
        if len(there) > 1 and there[1] not in _OWN_QDISCS:
            raise Hopeless(
                f"{station.name}: {nic} has a qdisc of its own already ({there[1]}), which could not be given back "
                "afterwards; take it off, or leave network: out"
            )
        station.ask(requests.UndoLater(name=f"tc of {nic}", argv=("sh", "-c", _TAKE_OFF, "sh", nic, *tc)))
        words = ""
        for way, arguments in tc_ways(condition):
            done = station.ask(requests.Run(argv=(*tc, "replace", "dev", nic, "root", *arguments), limit_s=20.0))
            if done.exit_code == 0:
                return way
            words = words or " ".join(done.stderr.split())
        raise Hopeless(
            f"{station.name}: cannot make the network condition {condition.label} ({words}); it needs tc as root or by "
            "`sudo -n tc`, and a kernel with netem; leave network: out otherwise"
        )


def tc_ways(condition: NetworkCondition) -> list[tuple[str, list[str]]]:
    """What tc can be told for a condition, best first. A kernel without netem can still limit a rate."""
    words = ["netem"]
    words += ["rate", f"{condition.rate_mbit:g}mbit"] if condition.rate_mbit is not None else []
    words += ["delay", f"{condition.delay_ms:g}ms"] if condition.delay_ms else []
    words += ["loss", "random", f"{condition.loss_pct:g}%"] if condition.loss_pct else []
    ways = [("netem", words)]
    if condition.rate_mbit is not None and not condition.delay_ms and not condition.loss_pct:
        # A millisecond of the rate, and room for a whole offloaded segment.
        burst = max(64 * 1024, int(condition.rate_mbit * 125))
        rate = f"{condition.rate_mbit:g}mbit"
        ways.append(("tbf", ["tbf", "rate", rate, "burst", str(burst), "latency", "50ms"]))
    return ways
