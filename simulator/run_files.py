"""Writes the files of a simulated job into its run directory: those of a real one (contracts/formats/trace.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.formats.device import CPU as CPU_KIND
from driple.contracts.formats.trace import (
    FLOW_COLUMNS,
    METADATA_KEY,
    SCHEMA_VERSION,
    SIMULATED_KEY,
    STEP_COLUMNS,
    TRACE_COLUMNS,
    Column,
)
from driple.contracts.run_dir import RunPaths, replacing
from driple.contracts.run_spec import JobSpec
from driple.simulator.job_metrics import SKIPPED_STEPS
from driple.simulator.sampling import Readings, readings
from driple.simulator.simulate import SimulatedJob

START_NS = 1_000_000_000
"""Time of the simulated clock at which the job starts."""
FLOWS = "flows"


def write_run(job: SimulatedJob, spec: JobSpec, kind: str, paths: RunPaths) -> dict[str, str]:
    """Writes traces and steps of all tasks; returns the traffic source of each.

    A task that shares a machine has its TCP flows recorded, as a real one: the interface counts all tasks of it.
    """
    hz = spec.run.measurement.sampling_hz
    shared = {task for group in spec.run.together if len(group) > 1 for task in group}
    sources = {}
    for task in spec.run.setting.tasks:
        seen = dict(readings(job, task, hz, gpu=kind != CPU_KIND))
        if task in shared:
            _write_flows(job, spec, task, hz, paths.flows(task))
            for name in ("nic_tx_bytes", "nic_rx_bytes"):
                del seen[name]
        sources[task] = FLOWS if task in shared else "nic:simulated"
        _write_trace(seen, hz, paths.trace(task))
        if task.startswith("worker"):
            _write_steps(job, int(task.partition(":")[2]), spec.run.measurement.warmup_steps, paths.steps(task))
        paths.log(task).write_text("simulated\n")
    return sources


def _write_trace(seen: Mapping[str, Readings], hz: float, path: Path) -> None:
    stamps = {name: _nanoseconds(one.t_s) for name, one in seen.items()}
    times = np.unique(np.concatenate(list(stamps.values())))
    columns: dict[str, Any] = {"t_mono_ns": times}
    for name, one in seen.items():
        values = np.full(len(times), np.nan)
        values[np.searchsorted(times, stamps[name])] = one.value
        columns[name] = values
    devices = {name: one.period_s for name, one in seen.items() if one.period_s is not None}
    sources: dict[str, Any] = {"simulated": {"asked_hz": hz}}
    if devices:
        period_ms = next(iter(devices.values())) * 1e3
        sources["gpu"] = {"method": dict.fromkeys(devices, "samples"), "sample_period_ms": {"median_ms": period_ms}}
    _write(columns, TRACE_COLUMNS, {"sources": sources}, path)


def _write_flows(job: SimulatedJob, spec: JobSpec, task: str, hz: float, path: Path) -> None:
    """A connection to every task with which it exchanged bytes."""
    ticks = np.arange(0, int(job.end_s * hz) + 1) / hz
    tables = []
    for number, other in enumerate(spec.run.setting.tasks):
        sent, received = job.pairs.get((task, other)), job.pairs.get((other, task))
        if sent is None and received is None:
            continue
        address, port = spec.task(task).address.rsplit(":", 1)
        remote, remote_port = spec.task(other).address.rsplit(":", 1)
        count = len(ticks)
        tables.append(
            {
                "t_mono_ns": _nanoseconds(ticks),
                "flow": np.full(count, number + 1),
                "local_address": [address] * count,
                "local_port": np.full(count, int(port)),
                "remote_address": [remote] * count,
                "remote_port": np.full(count, int(remote_port)),
                "of_task": np.ones(count),
                "bytes_acked": np.zeros(count) if sent is None else np.floor(sent.until(ticks)),
                "bytes_received": np.zeros(count) if received is None else np.floor(received.until(ticks)),
                "retransmits": np.zeros(count),
            }
        )
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    order = np.argsort(joined["t_mono_ns"], kind="stable")
    _write({name: values[order] for name, values in joined.items()}, FLOW_COLUMNS, {}, path)


def _write_steps(job: SimulatedJob, worker: int, warmup: int, path: Path) -> None:
    """Steps are numbered so that the simulated first step is the last one of the warm-up."""
    begun = _nanoseconds(job.begun[worker])
    number: Any = np.arange(len(begun) - 1) + max(warmup - SKIPPED_STEPS, 0)
    columns = {"step": number, "global_step": number + 1, "start_mono_ns": begun[:-1], "end_mono_ns": begun[1:]}
    _write({**columns, "loss": np.full(len(number), np.nan)}, STEP_COLUMNS, {}, path)


def _nanoseconds(seconds: Any) -> Any:
    return START_NS + np.round(np.asarray(seconds) * 1e9).astype(np.int64)


def _write(columns: Mapping[str, Any], declared: tuple[Column, ...], metadata: Mapping[str, Any], path: Path) -> None:
    """NaN becomes null: a reading that does not exist."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = len(next(iter(columns.values())))
    arrays = {}
    for column in declared:
        if column.name not in columns:
            arrays[column.name] = pa.nulls(rows, getattr(pa, column.type)())
            continue
        values = columns[column.name]
        mask = np.isnan(values) if getattr(values, "dtype", None) == np.float64 else None
        if mask is not None and not column.type.startswith("float"):
            values = np.where(mask, 0, values).astype(column.type)
        arrays[column.name] = pa.array(values, type=getattr(pa, column.type)(), mask=mask)
    table = pa.table(arrays)
    content = json.dumps({"schema_version": SCHEMA_VERSION, SIMULATED_KEY: True, **metadata})
    with replacing(path, "wb") as stream:
        pq.write_table(table.replace_schema_metadata({METADATA_KEY: content}), stream, compression="zstd")
