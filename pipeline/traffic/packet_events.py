"""Packets as events: what was sent when, each byte once."""

from __future__ import annotations

from collections.abc import Callable

from driple.pipeline.traffic.packet_columns import Endpoint, Packets
from driple.pipeline.traffic.traffic_events import Events, TaskFlow

PACKET_S = 0.001
"""The finest bins that the times of packets are good for."""


def packet_events(
    packets: Packets, name: Callable[[Endpoint], str], origin_ns: int, *, payload: bool = False
) -> Events:
    """What was sent on the wire, or the payload of it, from packets of any number of hosts."""
    sent = senders_only(packets)
    flows = tuple(
        TaskFlow(flow.source, flow.destination, flow.protocol, name(flow.source), name(flow.destination))
        for flow in sent.flows
    )
    size = sent.payload_bytes if payload else sent.wire_bytes
    return Events((sent.t_ns - origin_ns) / 1e9, sent.flow, size, flows, PACKET_S)


def senders_only(packets: Packets) -> Packets:
    """Each packet once, where it was sent. A capture of loopback, or without directions, has each packet once."""
    if not any(flow.sent for flow in packets.flows):
        return packets
    sent_somewhere = {flow._replace(sent=None) for flow in packets.flows if flow.sent}
    return packets.of_flows(
        [flow.sent is not False or flow._replace(sent=None) not in sent_somewhere for flow in packets.flows]
    )
