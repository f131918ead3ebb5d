"""What is done to the data links: rate by tbf, loss and delay by netem, or loss by nftables where there is no netem.

Which of them a kernel has is found out by trying. The commands are made by pure functions; `Shaper` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from driple.orchestrator.lab import linux_calls, tools
from driple.orchestrator.lab.bridges import Network
from driple.orchestrator.lab.layout import DATA_NIC, port_name
from driple.orchestrator.lab.tools import Batch, ToolError

UNSHAPED_ABOVE_MBIT = 5000.0
"""Links between namespaces carry 7 to 14 Gbit/s on an ordinary machine: a higher limit would be a promise, no limit."""

_TABLE = "netdev driple_lab_loss"
_QUEUE_S = 0.05
_LEAST_QUEUE_BYTES = 4 * 65536
"""At low rates: TCP hands over packets of up to 64 KB, and a queue that holds one loses half of them (10 Mbit/s)."""
_PACKET_BYTES = 1514


@dataclass(frozen=True)
class Shape:
    """One condition of all data links."""

    rate_mbit: float | None = None
    delay_ms: float = 0.0
    loss_pct: float = 0.0

    @property
    def limit_mbit(self) -> float | None:
        """The rate that is really set."""
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
    """For the host's own interface: what happens to what it sends."""
    lines = [f"qdisc replace dev {DATA_NIC} root noqueue"]
    where = "root handle 1:"
    if netem and (shape.delay_ms or shape.loss_pct):
        # Room for what is on its way during the delay, twice over; netem's own 1000 packets would be a loss of its own.
        waiting = 2 * (shape.limit_mbit or UNSHAPED_ABOVE_MBIT) * 125 * shape.delay_ms / _PACKET_BYTES
        line = f"qdisc replace dev {DATA_NIC} {where} netem limit {max(1000, round(waiting))}"
        line += f" delay {round(shape.delay_ms * 1000)}us" if shape.delay_ms else ""
        line += f" loss random {shape.loss_pct:.6f}%" if shape.loss_pct else ""
        lines.append(line)
        where = "parent 1:1 handle 10:"
    if shape.limit_mbit is not None:
        lines.append(rate_line(DATA_NIC, where, shape.limit_mbit))
    return lines


def receiving_lines(shape: Shape, number: int) -> list[str]:
    """For the bridge's end of a host's link: what happens to what the host receives."""
    port = port_name(number, "data")
    lines = [f"qdisc replace dev {port} root noqueue"]
    if shape.limit_mbit is not None:
        lines.append(rate_line(port, "root handle 1:", shape.limit_mbit))
    return lines


def loss_lines(loss_pct: float, numbers: Iterable[int]) -> list[str]:
    """nftables: drops what comes out of a host at the bridge's end, where the sender does not notice.

    A drop in the sender's own stack is reported to it, and TCP then sends again at once, as no real loss lets it.
    """
    share = max(1, round(loss_pct * 1000))
    lines = [f"add table {_TABLE}", f"delete table {_TABLE}"]
    if loss_pct:
        lines.append(f"add table {_TABLE}")
    for number in numbers if loss_pct else ():
        port = port_name(number, "data")
        hook = f'{{ type filter hook ingress device "{port}" priority 0; }}'
        lines.append(f"add chain {_TABLE} from-lab{number} {hook}")
        lines.append(f"add rule {_TABLE} from-lab{number} numgen random mod 100000 < {share} drop")
    return lines


class Shaper:
    """Applies a shape to every data link, entirely or not at all."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.now = Shape()
        self.how: dict[str, str] = {}
        self._tables = False
        """Whether nftables were used: they are not touched before they are needed."""

    def apply(self, shape: Shape) -> dict[str, str]:
        """Replaces what was there; returns how each part is done.

        Raises:
            ToolError: the kernel cannot, and everything is as it was.
        """
        netem = bool(shape.delay_ms or shape.loss_pct) and self.netem
        if shape.delay_ms and not netem:
            raise ToolError(
                f"a delay of {shape.delay_ms:g} ms needs netem, which this kernel does not have (module sch_netem)"
            )
        try:
            self._set(shape, netem, self._network.plugged)
        except ToolError:
            with suppress(ToolError):
                self._set(self.now, self._with_netem, self._network.plugged)
            raise
        self.now, self.how = shape, _how(shape, netem)
        return self.how

    def again(self, number: int) -> None:
        """The present shape for a host that was plugged in again; the links of the others are not touched."""
        self._set(self.now, self._with_netem, [number])

    @property
    def _with_netem(self) -> bool:
        return "netem" in self.how.values()

    @cached_property
    def netem(self) -> bool:
        """Whether the kernel has netem, tried on a device that nobody uses."""
        try:
            tools.run(Batch("tc", ["qdisc add dev lo root netem delay 1ms", "qdisc del dev lo root"]))
        except ToolError:
            return False
        return True

    def _set(self, shape: Shape, netem: bool, numbers: Sequence[int]) -> None:
        nft_loss = 0.0 if netem else shape.loss_pct
        if nft_loss or self._tables:
            try:
                # All or nothing, so it goes first; for all hosts, since a host's rules go with its link.
                tools.run(Batch("nft", loss_lines(nft_loss, self._network.plugged)))
            except ToolError as failure:
                raise ToolError(f"a loss of {shape.loss_pct:g} % needs netem or nftables: {failure}") from None
            self._tables = True
        self._network.run_inside({number: Batch("tc", sending_lines(shape, netem)) for number in numbers})
        tools.run(Batch("tc", [line for number in numbers for line in receiving_lines(shape, number)]))
        for number in numbers:
            with linux_calls.inside_network(self._network.namespace(number)):
                # Packets of up to 64 KB are good for speed, but one that is lost would be forty lost at once.
                linux_calls.set_segmentation(DATA_NIC, on=not shape.loss_pct)


def _how(shape: Shape, netem: bool) -> dict[str, str]:
    how = {"rate": "none"}
    if shape.limit_mbit is not None:
        how["rate"] = "tbf"
    elif shape.rate_mbit is not None:
        how["rate"] = (
            f"none: {shape.rate_mbit:g} Mbit/s is above {UNSHAPED_ABOVE_MBIT:g}, more than the lab can promise"
        )
    if shape.loss_pct:
        how["loss"] = "netem" if netem else "nft"
    if shape.delay_ms:
        how["delay"] = "netem"
    return how
