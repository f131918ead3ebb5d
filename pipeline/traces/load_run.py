"""Reads and checks a run directory, and maps all clocks to the controller's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import CorruptRun, shown
from driple.contracts.formats.trace import FLOW_COLUMNS, GAUGE, METADATA_KEY, SCHEMA_VERSION, STEP_COLUMNS
from driple.contracts.manifest import ClockFit, Manifest, TaskRecord
from driple.contracts.metrics import NET_RX, NET_TX
from driple.contracts.run_dir import PACKETS, RunPaths
from driple.pipeline.traces.align import Steps, Window, common_window, to_controller_ns
from driple.pipeline.traces.run_index import read_sealed
from driple.pipeline.traces.series import FloatArray

MAX_CLOCK_BOUND_NS = 100_000_000
"""With a larger error of its clock, a host cannot be put on one timeline with others."""
MAX_UNSEEN = 0.2
"""A run without samples in a larger share of the measured time is refused."""
_GAP_PERIODS = 5.0
_PACKETS = f"{PACKETS}/"
"""Packet files are large, and a damaged one is still of use; their reader checks them."""


@dataclass(frozen=True)
class Readings:
    """The known values of one column of a trace."""

    t_s: FloatArray
    """On the run's timeline: seconds since the first sample of any task."""
    value: Any
    """As stored: counters stay integers."""
    device_s: float | None = None
    """The sample period of a device that stamped the values."""


@dataclass(frozen=True)
class TaskTrace:
    """One task of a run."""

    task: str
    host: str
    readings: Mapping[str, Readings]
    """By column, without empty ones. Traffic summed over flows is `flows_tx_bytes` and `flows_rx_bytes`."""
    steps: Steps | None
    """None for a server."""
    window: Window
    """The measured part, without warm-up and tail."""
    flags: tuple[str, ...]
    first_step_end_s: float | None = None
    """End of the worker's very first step, which is part of the warm-up; None for a server, or if it is not known."""


@dataclass(frozen=True)
class Run:
    """A sealed run whose files were checked."""

    manifest: Manifest
    folder: Path
    tasks: Mapping[str, TaskTrace]
    origin_ns: int = 0
    """Zero of the run's timeline on the controller's clock."""


def load_run(folder: Path) -> Run:
    """Reads and checks a run directory.

    Raises CorruptRun if it is not sealed, a file is missing or was changed, or clocks or traces are not usable.
    """
    folder = Path(folder)
    paths = RunPaths(folder.absolute().parent.parent, folder.absolute().parent.name, folder.absolute().name)
    manifest = read_sealed(folder)
    _check_files(folder, {name: sum_ for name, sum_ in manifest.checksums.items() if not name.startswith(_PACKETS)})
    if [record.task for record in manifest.tasks] != list(manifest.run.setting.tasks):
        raise CorruptRun(f"{folder}: run.json does not have the tasks of {manifest.run.setting}")
    clocks = {record.task: _clock(folder, manifest, record) for record in manifest.tasks}
    traces = {r.task: _read_trace(paths, r, clocks[r.task]) for r in manifest.tasks}
    origin_ns = min(int(trace[_EVERY][0][0]) for trace in traces.values())
    steps = {
        record.task: _read_steps(paths.steps(record.task), clocks[record.task], origin_ns)
        for record in manifest.tasks
        if record.task.startswith("worker:")
    }
    warmup = manifest.run.measurement.warmup_steps
    windows = _windows(folder, {task: each.from_step(warmup) for task, each in steps.items()})
    tasks = {}
    for record in manifest.tasks:
        window, flags = windows.get(record.task, windows[""])
        readings = {
            name: Readings((t_ns - origin_ns) / 1e9, value, device_s)
            for name, (t_ns, value, device_s) in traces[record.task].items()
        }
        flags += _coverage(folder, record.task, readings.pop(_EVERY).t_s, window)
        bound = manifest.clocks[record.host].bound_ns
        if bound > 1e9 / manifest.run.measurement.sampling_hz:
            flags += (f"clock_bound_ms:{bound / 1e6:.0f}",)
        mine = steps.get(record.task)
        first = float(mine.end_s[0]) if mine is not None and mine.step[0] == 0 else None
        mine = mine.from_step(warmup).within(window) if mine is not None else None
        tasks[record.task] = TaskTrace(record.task, record.host, readings, mine, window, flags, first)
    return Run(manifest, folder, tasks, origin_ns)


_EVERY = ""
"""Key of the times of all rows, while a trace is read."""


def _check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    top = folder.resolve()
    for name, expected in sorted(checksums.items()):
        path = folder / name
        if not path.resolve().is_relative_to(top):
            raise CorruptRun(f"{path}: outside the run's folder")
        if not path.is_file():  # reading a pipe would never end
            raise CorruptRun(f"{path}: {'not a regular file' if path.exists() else 'missing'}")
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise CorruptRun(f"{path}: {error.strerror}") from None
        if found != expected:
            raise CorruptRun(f"{path}: changed since it was sealed (its SHA-256 differs from the one in run.json)")


def _clock(folder: Path, manifest: Manifest, record: TaskRecord) -> ClockFit:
    clock = manifest.clocks.get(record.host)
    if clock is None:
        raise CorruptRun(f"{folder}: run.json has no clock of host {shown(record.host)}")
    if clock.bound_ns > MAX_CLOCK_BOUND_NS:
        raise CorruptRun(
            f"{folder}: the clock of {record.host} is uncertain by {clock.bound_ns / 1e6:.0f} ms, more than "
            f"{MAX_CLOCK_BOUND_NS / 1e6:.0f} ms"
        )
    return clock


def read_parquet(path: Path) -> Any:
    """A Parquet file as a table. Raises CorruptRun if it cannot be read."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path, use_threads=False)
        table.column_names  # noqa: B018 - raises if a name is not UTF-8
        return table
    except FileNotFoundError:
        raise CorruptRun(f"{path}: No such file or directory") from None
    except (OSError, pyarrow.ArrowException, ValueError) as error:
        raise CorruptRun(f"{path}: not readable as Parquet ({shown(str(error))})") from None


def trace_metadata(path: Path, table: Any) -> dict[str, Any]:
    """The metadata of a file of a run. Raises CorruptRun if it has none, or another schema version."""
    try:
        metadata = json.loads((table.schema.metadata or {})[METADATA_KEY.encode()])
        version = metadata.get("schema_version")
    except (KeyError, ValueError, AttributeError):
        raise CorruptRun(f"{path}: not a file of Driple: no metadata {METADATA_KEY!r}") from None
    if version != SCHEMA_VERSION:
        raise CorruptRun(f"{path}: schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
    return dict(metadata)


def _table(path: Path) -> Any:
    table = read_parquet(path)
    trace_metadata(path, table)
    return table


def _column(path: Path, table: Any, name: str) -> Any:
    from pyarrow import types

    if name not in table.column_names:
        raise CorruptRun(f"{path}: no column {name!r}")
    column = table.column(name).combine_chunks()
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_null(column.type)):
        raise CorruptRun(f"{path}: column {name!r} is of type {column.type}, expected numbers")
    return column


def device_periods(metadata: Any) -> dict[str, float]:
    """Sample periods of devices that stamp their samples, by column."""
    sources = metadata.get("sources") if isinstance(metadata, dict) else None
    found = {}
    for name, source in sources.items() if isinstance(sources, dict) else ():
        try:
            methods, period_ms = source["method"].items(), float(source["sample_period_ms"]["median_ms"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # no such device
        number = name[len(name.rstrip("0123456789")) :]
        for column, method in methods:
            if method == "samples" and np.isfinite(period_ms) and period_ms > 0:
                found[column if number in ("", "0") else f"{column}_{number}"] = period_ms / 1e3
    return found


def _read_trace(paths: RunPaths, record: TaskRecord, clock: ClockFit) -> dict[str, tuple[Any, Any, float | None]]:
    """Times on the controller's clock, values and device period of each column that has values."""
    path = paths.trace(record.task)
    table = _table(path)
    if table.num_rows == 0:
        raise CorruptRun(f"{path}: no samples")
    t_ns = to_controller_ns(clock, _column(path, table, "t_mono_ns").to_numpy(zero_copy_only=False))
    devices = device_periods(trace_metadata(path, table))
    found: dict[str, tuple[Any, Any, float | None]] = {_EVERY: (t_ns, None, None)}
    for name in table.column_names:
        if name in ("t_mono_ns", "t_real_ns"):
            continue
        column = _column(path, table, name)
        if column.null_count < len(column):
            known = column.is_valid().to_numpy(zero_copy_only=False)
            found[name] = t_ns[known], column.drop_null().to_numpy(zero_copy_only=False), devices.get(name)
    if record.traffic_source == "flows":
        for name, (at_ns, value) in _read_flows(paths.flows(record.task)).items():
            found[name] = to_controller_ns(clock, at_ns), value, None
    return found


def _read_flows(path: Path) -> dict[str, tuple[Any, Any]]:
    table = _table(path)
    columns = {
        c.name: _column(path, table, c.name) for c in FLOW_COLUMNS if c.kind != "name" or c.name in ("flow", "of_task")
    }
    # A connection has no owner until it is accepted, so one that is the task's at any time always was.
    said = columns["of_task"].fill_null(0).to_numpy(zero_copy_only=False) == 1
    if not said.any():
        return {}
    numbers = columns["flow"].to_numpy(zero_copy_only=False)
    of_task = np.isin(numbers, numbers[said])
    t_ns, flow, sent, received = (
        columns[name].fill_null(0).to_numpy(zero_copy_only=False)[of_task]
        for name in ("t_mono_ns", "flow", "bytes_acked", "bytes_received")
    )
    at_ns, tx, rx = task_traffic(t_ns, flow, sent, received)
    return {str(NET_TX.flow_column): (at_ns, tx), str(NET_RX.flow_column): (at_ns, rx)}


def task_traffic(t_ns: Any, flow: Any, sent: Any, received: Any) -> tuple[Any, Any, Any]:
    """Times of the reads, and bytes sent and received until then: the sum over the TCP flows of a task.

    A flow of the first read counts from its value then. A later one counts from zero, because all its bytes were sent
    since. A flow that ends changes nothing.
    """
    reads, read = np.unique(t_ns, return_inverse=True)
    order = np.lexsort((read, flow))
    new = np.r_[True, flow[order][1:] != flow[order][:-1]]
    at = read[order]
    known_before = new & (at == 0)

    def counted(counter: Any) -> Any:
        value = counter[order].astype(np.int64)
        gained = np.diff(value, prepend=0)
        gained[new] = value[new]
        gained[known_before] = 0
        gained = np.maximum(gained, 0)
        return np.cumsum(np.bincount(at, weights=gained, minlength=len(reads)))

    return reads, counted(sent), counted(received)


def _read_steps(path: Path, clock: ClockFit, origin_ns: int) -> Steps:
    table = _table(path)
    columns = {c.name: _column(path, table, c.name) for c in STEP_COLUMNS if c.kind != GAUGE}
    if any(column.null_count for column in columns.values()):
        raise CorruptRun(f"{path}: a step without a number or time")
    value = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
    start, end = (to_controller_ns(clock, value[f"{which}_mono_ns"]) for which in ("start", "end"))
    if np.any(end < start) or np.any(np.diff(start) < 0):
        raise CorruptRun(f"{path}: the steps are not in order of time")
    return Steps(value["step"], (start - origin_ns) / 1e9, (end - origin_ns) / 1e9)


def _windows(folder: Path, measured: Mapping[str, Steps]) -> dict[str, tuple[Window, tuple[str, ...]]]:
    """The measured part of each worker, and that of servers with the key ""."""
    for task, steps in measured.items():
        if len(steps.step) == 0:
            raise CorruptRun(f"{folder}: {task} did no step after warm-up")
    if not measured:
        raise CorruptRun(f"{folder}: no workers")
    together = common_window(list(measured.values()))
    apart = ("workers_not_together",)
    found: dict[str, tuple[Window, tuple[str, ...]]] = {}
    for task, steps in measured.items():
        shared = steps.within(together) if together else None
        if shared is None or len(shared.step) * 2 < len(steps.step):
            found[task] = steps.window, apart  # most steps would be lost, so all are kept and flagged
        else:
            found[task] = shared.window, ()
    if together is not None:
        found[""] = together, ()
    else:
        windows = [steps.window for steps in measured.values()]
        found[""] = Window(min(w.start_s for w in windows), max(w.end_s for w in windows)), apart
    return found


def _coverage(folder: Path, task: str, t_s: FloatArray, window: Window) -> tuple[str, ...]:
    """Flags about gaps in the measured part. Raises CorruptRun if too much of it has no samples."""
    inside = t_s[(t_s >= window.start_s) & (t_s <= window.end_s)]
    inside = np.unique(inside)
    pauses = np.diff(np.r_[window.start_s, inside, window.end_s])
    usual = float(np.median(pauses)) if len(pauses) else 0.0
    gaps = pauses[pauses > max(_GAP_PERIODS * usual, 1e-9)] if len(inside) > 2 else pauses
    unseen = float(np.sum(gaps)) / window.duration_s if window.duration_s > 0 else 1.0
    if unseen > MAX_UNSEEN:
        raise CorruptRun(f"{folder}: the trace of {task} has no samples in {unseen:.0%} of the measured time")
    return (f"trace_gaps:{len(gaps)}",) if len(gaps) else ()
