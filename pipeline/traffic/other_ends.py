"""Takes the packets of a damaged capture from the other end of their flows."""

from __future__ import annotations

from collections.abc import Mapping

from driple.pipeline.traffic.packet_columns import Flow, Packets


def other_ends(captures: Mapping[str, Packets]) -> tuple[list[Packets], list[str]]:
    """The captures by name, without the flows of damaged ones that a whole one has; and notes that say so."""
    whole = {_either_end(flow) for part in captures.values() if not part.damaged for flow in part.flows}
    found, notes = [], []
    for name, part in captures.items():
        keep = [not part.damaged or _either_end(flow) not in whole for flow in part.flows]
        found.append(part if all(keep) else part.only_flows(keep))
        if not all(keep):
            own = keep.count(True)
            rest = f"; {own} of its flows are in no other file and stay incomplete" if own else ""
            notes.append(f"{name}: damaged: packets of its flows are those of the other end, and loss is unknown{rest}")
    return found, notes


def _either_end(flow: Flow) -> Flow:
    return flow._replace(sent=None)
