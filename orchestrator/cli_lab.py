"""driple-lab: a cluster of network namespaces on this machine."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-lab",
    description="Bring up, look at, enter and take down the lab: hosts in network namespaces on this machine.",
    example="driple-lab up --hosts 4 --rate 1gbit",
)
