"""Columns of a trace: names, types, units, and which of them shows which resource.

A trace keeps the raw readings: counters stay counters, and a reading that a device does not support is null. Rates,
alignment and bursts are computed later and can be computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from driple.contracts.metrics import Resource
from driple.contracts.setting import CPU

SCHEMA_VERSION = 1

METADATA_KEY = "driple"
"""Key of a trace's Parquet metadata: JSON with the schema version, the quality of every source and how it was read."""
SIMULATED_KEY = "simulated"
"""Key in it: true in the trace of a simulated task."""

TIME = "time"
COUNTER = "counter"
GAUGE = "gauge"
NAME = "name"


@dataclass(frozen=True)
class Column:
    """One column of a trace file."""

    name: str
    kind: str
    """`time`, `counter` (only grows, except for wraps and resets), `gauge`, or `name` (identifies the row)."""
    type: str
    """Arrow type."""
    unit: str
    meaning: str


TRACE_COLUMNS: Tuple[Column, ...] = (
    Column("t_mono_ns", TIME, "int64", "ns", "host's monotonic clock at the read"),
    Column("t_real_ns", TIME, "int64", "ns", "host's wall clock at the same moment, about once a second"),
    Column("gpu_util_pct", GAUGE, "float32", "%", "share of time in which a kernel ran"),
    Column("gpu_mem_util_pct", GAUGE, "float32", "%", "share of time in which device memory was read or written"),
    Column("gpu_mem_used_bytes", GAUGE, "int64", "B", "device memory in use"),
    Column("gpu_sm_clock_mhz", GAUGE, "int32", "MHz", "clock of the multiprocessors"),
    Column("gpu_power_mw", GAUGE, "int32", "mW", "board power"),
    Column("gpu_temperature_c", GAUGE, "int32", "C", "die temperature"),
    Column("nic_tx_bytes", COUNTER, "uint64", "B", "bytes sent by the task's interface"),
    Column("nic_rx_bytes", COUNTER, "uint64", "B", "bytes received by the task's interface"),
    Column("nic_tx_packets", COUNTER, "uint64", "packets", "packets sent by the task's interface"),
    Column("nic_rx_packets", COUNTER, "uint64", "packets", "packets received by the task's interface"),
    Column("task_cpu_ns", COUNTER, "int64", "ns", "CPU time of the task's whole process tree"),
    Column("task_rss_bytes", GAUGE, "int64", "B", "resident memory of the task's whole process tree"),
    Column("task_mem_traffic_bytes", COUNTER, "int64", "B", "memory traffic by hardware counters, where there are any"),
    Column("host_cpu_busy_ns", COUNTER, "int64", "ns", "CPU time of all that runs on the host"),
    Column("host_mem_used_bytes", GAUGE, "int64", "B", "memory of the host in use"),
)

FLOW_COLUMNS: Tuple[Column, ...] = (
    Column("t_mono_ns", TIME, "int64", "ns", "host's monotonic clock at the read"),
    Column("flow", NAME, "uint64", "", "the kernel's number of the socket: tells apart flows that reuse a port"),
    Column("local_address", NAME, "string", "", "address at this host"),
    Column("local_port", NAME, "int32", "", "port at this host"),
    Column("remote_address", NAME, "string", "", "address at the other end"),
    Column("remote_port", NAME, "int32", "", "port at the other end"),
    Column("of_task", NAME, "int32", "", "1 where the socket is the task's, 0 where not, null where unknown"),
    Column("bytes_acked", COUNTER, "uint64", "B", "bytes sent that the other end has acknowledged"),
    Column("bytes_received", COUNTER, "uint64", "B", "bytes received"),
    Column("retransmits", COUNTER, "int64", "segments", "segments that were sent again"),
)

STEP_COLUMNS: Tuple[Column, ...] = (
    Column("step", COUNTER, "int64", "steps", "this worker's step, warm-up included, from 0"),
    Column("global_step", COUNTER, "int64", "steps", "the job's step after this one"),
    Column("start_mono_ns", TIME, "int64", "ns", "host's monotonic clock when the step began"),
    Column("end_mono_ns", TIME, "int64", "ns", "host's monotonic clock when the step ended"),
    Column("loss", GAUGE, "float32", "", "training loss of the step"),
    Column("accuracy", GAUGE, "float32", "", "share of the step's examples classified right; null if unknown"),
)

NS_PER_PERCENT = 1e7
"""One percent of a core is 10 ms of its time in a second."""

_BY_NAME: Dict[str, Column] = {column.name: column for column in TRACE_COLUMNS}


def column_of(resource: Resource, device: str) -> Column:
    """The trace column that shows `resource` on a device kind (`cpu` or a GPU)."""
    return _BY_NAME[resource.cpu_column if device == CPU else resource.gpu_column]


def units_per_amount(resource: Resource, column: Column) -> Optional[float]:
    """The divisor from a column's unit (of a counter: per second) to the unit of the resource; None if there is none.

    A processor time in ns becomes a percentage of one core. Bytes of memory traffic do not become a percentage.
    """
    unit = f"{column.unit}/s" if column.kind == COUNTER else column.unit
    if unit == resource.amount_unit:
        return 1.0
    return NS_PER_PERCENT if (unit, resource.amount_unit) == ("ns/s", "%") else None
