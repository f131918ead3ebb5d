"""driple-sample: what a host's device and network did, at high frequency."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-sample",
    description="Sample the GPU, the network interface and a task's CPU at a fixed rate into one trace file.",
    example="driple-sample --hz 200 --for 10 --nic eth0 --gpu 0 --pid 1234 --out trace.parquet",
)
