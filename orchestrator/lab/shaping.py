"""Network conditions of the data links: rate by tbf, loss and delay by netem, congestion control by routes.

Without netem, nftables make a loss and a relay in user space makes a delay (delay_relay.py).

Pure functions build the commands; `Shaper` runs them, and finds out by trying what the kernel supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from driple.contracts.manifest import BY_ROUTE
from driple.contracts.run_spec import NetworkCondition
from driple.orchestrator.lab import linux_calls, tools
from driple.orchestrator.lab.bridges import Network
from driple.orchestrator.lab.delay_links import DelayLinks
from driple.orchestrator.lab.layout import DATA_NETWORK, DATA_NIC, data_address
from driple.orchestrator.lab.tools import Batch, ToolError
from driple.orchestrator.netem import WITHOUT_NETEM, netem_words

UNSHAPED_ABOVE_MBIT = 5000.0
"""Links between namespaces carry 7 to 14 Gbit/s on an ordinary machine; a higher limit would have no effect."""

CONGESTION = "cubic"
"""Of a lab, unless the condition names another: many kernels have bbr as theirs, which hides loss."""

_TABLE = "netdev driple_lab_loss"
_QUEUE_S = 0.05
_LEAST_QUEUE_BYTES = 4 * 65536
"""For low rates: TCP sends packets of up to 64 KB, and a queue for one of them loses half (at 10 Mbit/s)."""
_PACKET_BYTES = 1514


class Shape(NetworkCondition):
    """The condition of all data links."""

    @property
    def limit_mbit(self) -> float | None:
        return None if self.rate_mbit is None or self.rate_mbit > UNSHAPED_ABOVE_MBIT else self.rate_mbit


def burst_bytes(rate_mbit: float) -> int:
    """1 ms of the rate, at least one packet of 64 KB where that is under 10 ms of it, and always two of wire size."""
    per_ms = rate_mbit * 125
    return round(max(per_ms, min(65536, 10 * per_ms), 2 * _PACKET_BYTES))


def rate_line(device: str, where: str, rate_mbit: float) -> str:
    """One direction of a rate limit."""
    burst = burst_bytes(rate_mbit)
    limit = burst + max(round(rate_mbit * 125_000 * _QUEUE_S), _LEAST_QUEUE_BYTES)
    return f"qdisc replace dev {device} {where} tbf rate {round(rate_mbit * 1e6)}bit burst {burst} limit {limit}"


def sending_lines(shape: Shape, netem: bool) -> list[str]:
    """Commands for the host's interface, which affect what it sends."""
    lines = [f"qdisc replace dev {DATA_NIC} root noqueue"]
    where = "root handle 1:"
    words = netem_words(shape)
    if netem and words:
        # Twice the packets in flight during the delay; the default of 1000 packets would cause loss.
        waiting = 2 * (shape.limit_mbit or UNSHAPED_ABOVE_MBIT) * 125 * shape.delay_ms / _PACKET_BYTES
        limit = max(1000, round(waiting))
        lines.append(f"qdisc replace dev {DATA_NIC} {where} netem limit {limit} {' '.join(words)}")
        where = "parent 1:1 handle 10:"
    if shape.limit_mbit is not None:
        lines.append(rate_line(DATA_NIC, where, shape.limit_mbit))
    return lines


def receiving_lines(shape: Shape, device: str) -> list[str]:
    """Commands for the bridge's device of a host, which affect what the host receives."""
    lines = [f"qdisc replace dev {device} root noqueue"]
    if shape.limit_mbit is not None:
        lines.append(rate_line(device, "root handle 1:", shape.limit_mbit))
    return lines


def route_line(congestion: str | None, number: int) -> str:
    """The route of a host to the others; None for the kernel's own congestion control."""
    line = f"route replace {DATA_NETWORK} dev {DATA_NIC} proto kernel scope link src {data_address(number)}"
    return line if congestion is None else f"{line} congctl {congestion}"


def loss_lines(loss_pct: float, devices: Mapping[int, str]) -> list[str]:
    """nftables: drops packets of a host at the bridge, by number and device.

    TCP notices a drop in the sender's own stack and retransmits at once, unlike after a real loss.
    """
    share = max(1, round(loss_pct * 1000))
    lines = [f"add table {_TABLE}", f"delete table {_TABLE}"]
    if loss_pct:
        lines.append(f"add table {_TABLE}")
    for number, device in devices.items() if loss_pct else ():
        hook = f'{{ type filter hook ingress device "{device}" priority 0; }}'
        lines.append(f"add chain {_TABLE} from-lab{number} {hook}")
        lines.append(f"add rule {_TABLE} from-lab{number} numgen random mod 100000 < {share} drop")
    return lines


class Shaper:
    """Applies a shape to every data link, completely or not at all."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.now = Shape()
        self.how: dict[str, str] = {}
        self._delays = DelayLinks()
        self._tables = False  # whether nftables were used; they are left alone until needed

    def apply(self, shape: Shape) -> dict[str, str]:
        """Replaces the shape; returns the mechanism of each part. A ToolError means that nothing was changed."""
        netem = bool(netem_words(shape)) and self.netem
        for part, text in shape.parts.items():
            if part not in WITHOUT_NETEM and not netem:
                raise ToolError(f"a {part} of {text} needs netem; this kernel has no module sch_netem")
        if shape.congestion is not None and shape.congestion not in self._congestions:
            raise ToolError(
                f"this kernel has no congestion control {shape.congestion} (it has {', '.join(self._congestions)}); "
                f"as root: modprobe tcp_{shape.congestion}"
            )
        try:
            self._set(shape, netem, self._network.plugged)
        except ToolError:
            with suppress(ToolError):
                self._set(self.now, self._with_netem, self._network.plugged)
            raise
        self.now, self.how = shape, self._how(shape, netem)
        return self.how

    def again(self, number: int) -> None:
        """Applies the present shape to a host that was revived; the links of the others are not changed."""
        self._set(self.now, self._with_netem, [number])

    def end(self) -> None:
        """Ends the processes of the links."""
        self._delays.stop()

    @property
    def _with_netem(self) -> bool:
        return "netem" in self.how.values()

    @cached_property
    def netem(self) -> bool:
        """Whether the kernel has netem, tried on an unused device."""
        try:
            tools.run(Batch("tc", ["qdisc add dev lo root netem delay 1ms", "qdisc del dev lo root"]))
        except ToolError:
            return False
        return True

    @cached_property
    def _congestions(self) -> tuple[str, ...]:
        return tuple(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())

    def _congestion(self, shape: Shape) -> str | None:
        usual = CONGESTION if CONGESTION in self._congestions else None
        return shape.congestion or usual

    def _set(self, shape: Shape, netem: bool, numbers: Sequence[int]) -> None:
        if shape.delay_ms and not netem:
            self._delays.start(shape.delay_ms, self._network.plugged)  # one relay for all: it starts again
            numbers = self._network.plugged
        else:
            self._delays.stop()
        device = self._delays.device
        nft_loss = 0.0 if netem else shape.loss_pct
        if nft_loss or self._tables:
            try:
                # First, because it is atomic; for all hosts, because the rules of a host are removed with its link.
                tools.run(
                    Batch("nft", loss_lines(nft_loss, {number: device(number) for number in self._network.plugged}))
                )
            except ToolError as failure:
                raise ToolError(f"a loss of {shape.loss_pct:g} % needs netem or nftables: {failure}") from None
            self._tables = True
        self._network.run_inside({number: Batch("tc", sending_lines(shape, netem)) for number in numbers})
        tools.run(Batch("tc", [line for number in numbers for line in receiving_lines(shape, device(number))]))
        congestion = self._congestion(shape)
        self._network.run_inside({number: Batch("ip", [route_line(congestion, number)]) for number in numbers})
        for number in numbers:
            with linux_calls.inside_network(self._network.namespace(number)):
                # Packets of up to 64 KB are faster, but losing one would be a loss of forty at once.
                linux_calls.set_segmentation(DATA_NIC, on=not shape.loss_pct)

    def _how(self, shape: Shape, netem: bool) -> dict[str, str]:
        how = {"rate": "none" if shape.limit_mbit is None else "tbf"}
        if shape.rate_mbit is not None and shape.limit_mbit is None:
            how["rate"] = (
                f"none: {shape.rate_mbit:g} Mbit/s is above {UNSHAPED_ABOVE_MBIT:g}, which the lab cannot shape"
            )
        made = {part: "netem" if netem else WITHOUT_NETEM.get(part, "") for part in shape.parts}
        congestion = self._congestion(shape)
        return {**made, **how, "congestion": "of the kernel" if congestion is None else f"{congestion} {BY_ROUTE}"}
