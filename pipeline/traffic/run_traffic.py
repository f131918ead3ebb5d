"""The traffic of a run directory: from its packet files if it has any, else from its counters and flow tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, CorruptRun
from driple.contracts.formats.dataset import MEASURED, SIMULATED
from driple.contracts.formats.packets import TCP
from driple.contracts.json_values import read_json_file
from driple.contracts.metrics import NET_TX
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import STRATEGIES
from driple.contracts.traffic_formulas import StepBytes, received, sent, server_traffic, step_traffic
from driple.pipeline.graph.public import read_graph, read_step
from driple.pipeline.readers.packet_file import read_packet_file
from driple.pipeline.traces.align import to_controller_ns
from driple.pipeline.traces.load_run import Run, load_run, read_parquet
from driple.pipeline.traffic.other_ends import other_ends
from driple.pipeline.traffic.packet_columns import Endpoint, Packets, join
from driple.pipeline.traffic.packet_events import PACKET_S, packet_events
from driple.pipeline.traffic.traffic_events import OTHER, OTHERS, Events, TaskFlow
from driple.pipeline.traffic.traffic_job import COUNTERS, PACKETS, JobKind, TrafficJob

_LEARNED = ("accuracy", "loss")
_ADDRESS = re.compile(r"\[?(.*?)\]?:(\d+)")

Names = Mapping[Endpoint, str]


def run_job(folder: Path) -> TrafficJob:
    """Reads a run. Raises CorruptRun if it cannot be used."""
    run = load_run(folder)
    folder = folder.absolute()
    paths = RunPaths(folder.parent.parent, folder.parent.name, folder.name)
    job: JobSpec = read_json_file(paths.job, JobSpec.from_json)
    tables = {task: _flow_table(paths, run, task) for task in run.tasks if paths.flows(task).exists()}
    names = _Endpoints(job, tables)
    packets, notes = _packets(paths, run)
    if packets is None:
        events, more = _counted(run, tables, names)
        notes += more
    else:
        events = packet_events(packets, names.task, run.origin_ns)
    learned, what = _learned(paths, run)
    windows = [trace.window for trace in run.tasks.values()]
    servers = [trace.window for task, trace in run.tasks.items() if not task.startswith("worker:")]
    return TrafficJob(
        name=run.manifest.run_id,
        path=folder,
        source=COUNTERS if packets is None else PACKETS,
        kind=(kind := _kind(run, paths)),
        expected=_expected(run, paths, kind.gradient_bytes),
        provenance=SIMULATED if run.manifest.is_simulated else MEASURED,
        events=events,
        interface=_interface_events(run) if packets is None else None,
        counted_again=_sent_again(tables.values()) if packets is None else None,
        packets=packets,
        payload=None if packets is None else packet_events(packets, names.task, run.origin_ns, payload=True),
        steps={task: trace.steps for task, trace in run.tasks.items() if trace.steps is not None},
        window=servers[0] if servers else max(windows, key=lambda window: window.duration_s),
        learned=learned,
        learned_what=what,
        run=run,
        notes=(*notes, *(f"{task}: {flag}" for task, trace in run.tasks.items() for flag in trace.flags)),
    )


class _Endpoints:
    """Finds the task of an endpoint: by the flow tables, then by the port it listens on, then by its host."""

    def __init__(self, job: JobSpec, tables: Mapping[str, Any]) -> None:
        self._names: dict[Endpoint, str] = {}
        on_address: dict[str, set[str]] = {}
        for spec in job.tasks:
            found = _ADDRESS.fullmatch(spec.address)
            if found is not None:
                self._names[Endpoint(found[1], int(found[2]))] = spec.task
                on_address.setdefault(found[1], set()).add(spec.task)
        self._only = {address: next(iter(tasks)) for address, tasks in on_address.items() if len(tasks) == 1}
        for task, table in tables.items():
            for address, port in set(zip(table["local_address"], table["local_port"].tolist(), strict=True)):
                self._names[Endpoint(address, port)] = task

    def task(self, end: Endpoint) -> str:
        """The task, or the address of an endpoint that belongs to none."""
        return self._names.get(end) or self._only.get(end.address) or end.address or OTHER


def _packets(paths: RunPaths, run: Run) -> tuple[Packets | None, tuple[str, ...]]:
    parts: dict[str, Packets] = {}
    notes: list[str] = []
    for host in run.manifest.clocks:
        path = paths.packets(host)
        if not path.exists():
            continue
        clock = run.manifest.clocks[host]
        try:
            found, _ = read_packet_file(path, lambda t_ns, clock=clock: to_controller_ns(clock, t_ns))  # type: ignore[misc]
        except BadInput as error:
            notes.append(str(error))
            continue
        parts[path.name] = found
        notes += found.notes
    whole, replaced = other_ends(parts)
    return (join(whole) if parts else None), (*notes, *replaced)


def _kind(run: Run, paths: RunPaths) -> JobKind:
    spec = run.manifest.run
    workload = spec.workload
    return JobKind(
        framework=workload.framework,
        backend=workload.backend,
        model=workload.model,
        optimiser=workload.optimiser,
        batch_size=workload.batch_size,
        topology=workload.path,
        loss_pct=spec.network.loss_pct,
        congestion=run.manifest.congestion,
        workers=spec.setting.workers,
        servers=spec.setting.servers,
        gradient_bytes=_gradient_bytes(run, paths),
    )


def _gradient_bytes(run: Run, paths: RunPaths) -> float | None:
    """What the workers said, else of the graph; None if neither is known."""
    try:
        found = float(run.manifest.trained_with.get("gradient_bytes") or read_graph(paths.graph("worker")).bytes_sent)
    except (BadInput, ValueError):
        return None
    return found if np.isfinite(found) and found > 0 else None


def _expected(run: Run, paths: RunPaths, gradient_bytes: float | None) -> dict[str, StepBytes] | None:
    """By the formula: with servers from the variables that the graph places on each."""
    spec = run.manifest.run
    if STRATEGIES[spec.workload.strategy].has_servers:
        try:
            servers = read_step(paths.graph("worker")).server_bytes(spec.setting.servers)
        except BadInput:
            return None
        traffic = server_traffic(*servers, spec.setting.workers)
    elif gradient_bytes is None:
        return None
    else:
        traffic = step_traffic(spec, [int(gradient_bytes)])
    return {task: StepBytes(sent(traffic, task), received(traffic, task)) for task in spec.setting.tasks}


_SENT_AGAIN = "retransmits"
_TABLE = ("t_mono_ns", "flow", "local_address", "local_port", "remote_address", "remote_port", "of_task", "bytes_acked")


def _flow_table(paths: RunPaths, run: Run, task: str) -> dict[str, Any]:
    """The rows of the task's own flows, with times in seconds on the run's timeline."""
    table = read_parquet(paths.flows(task))
    missing = [name for name in _TABLE if name not in table.column_names]
    if missing:
        raise CorruptRun(f"{paths.flows(task)}: no column {missing[0]!r}")
    names = [*_TABLE, *({_SENT_AGAIN} & {*table.column_names})]
    found = {name: table.column(name).to_numpy(zero_copy_only=False) for name in names}
    said = found["of_task"] == 1
    own = np.isin(found["flow"], found["flow"][said])
    found = {name: values[own] for name, values in found.items()}
    clock = run.manifest.clocks[run.tasks[task].host]
    found["t_s"] = (to_controller_ns(clock, found["t_mono_ns"].astype(np.int64)) - run.origin_ns) / 1e9
    return found


def _sent_again(tables: Iterable[Mapping[str, Any]]) -> int | None:
    """Segments that the flows sent again; None if no table counts them. As bytes: from the value of the first look."""
    counted = [table for table in tables if _SENT_AGAIN in table and len(table["flow"])]
    total = 0
    for table in counted:
        again, begin = np.nan_to_num(table[_SENT_AGAIN].astype(float)), table["t_s"].min()
        for cookie in np.unique(table["flow"]):
            own = table["flow"] == cookie
            total += int(again[own].max() - (again[own][0] if table["t_s"][own][0] == begin else 0))
    return total if counted else None


def _counted(run: Run, tables: Mapping[str, Mapping[str, Any]], names: _Endpoints) -> tuple[Events, tuple[str, ...]]:
    """What flow tables say, if all tasks have one: the pairs of some tasks alone look like those of the job."""
    without = [task for task in run.tasks if task not in tables]
    if not without:
        return _flow_events(tables, names), ()
    note = f"no flow table of {', '.join(without)}: read from interface counters alone, without pairs and flows"
    return _events((), (), (), (), float("inf")), (note,)


def _flow_events(tables: Mapping[str, Mapping[str, Any]], names: _Endpoints) -> Events:
    """What the kernel's counters say that each flow sent. A flow of the first look counts from its value then."""
    times, numbers, gains, periods = [], [], [], []
    flows: list[TaskFlow] = []
    for table in tables.values():
        looks = np.unique(table["t_s"])
        periods += np.diff(looks).tolist()
        for cookie in np.unique(table["flow"]):
            which = np.flatnonzero(table["flow"] == cookie)
            row = int(which[0])
            source = Endpoint(table["local_address"][row], int(table["local_port"][row]))
            destination = Endpoint(table["remote_address"][row], int(table["remote_port"][row]))
            t_s, acked = table["t_s"][which], table["bytes_acked"][which].astype(np.int64)
            gained = np.maximum(np.diff(acked, prepend=acked[0] if t_s[0] == looks[0] else 0), 0)
            some = gained > 0
            times.append(t_s[some])
            numbers.append(np.full(int(some.sum()), len(flows)))
            gains.append(gained[some])
            flows.append(TaskFlow(source, destination, TCP, names.task(source), names.task(destination)))
    return _events(times, numbers, gains, flows, max(PACKET_S, float(np.median(periods)) if periods else 1.0))


def _interface_events(run: Run) -> Events:
    """What the network columns of every task say."""
    times, numbers, gains, periods = [], [], [], []
    flows: list[TaskFlow] = []
    nobody = Endpoint("", 0)
    for task, trace in run.tasks.items():
        column = NET_TX.cpu_column if NET_TX.cpu_column in trace.readings else str(NET_TX.flow_column)
        readings = trace.readings.get(column)
        if readings is None:
            continue
        gained = np.maximum(np.diff(readings.value.astype(np.int64)), 0)
        some = gained > 0
        periods += np.diff(readings.t_s).tolist()
        times.append(readings.t_s[1:][some])
        numbers.append(np.full(int(some.sum()), len(flows)))
        gains.append(gained[some])
        flows.append(TaskFlow(nobody, nobody, TCP, task, OTHERS))
    return _events(times, numbers, gains, flows, max(PACKET_S, float(np.median(periods)) if periods else 1.0))


def _events(times: Any, numbers: Any, gains: Any, flows: Iterable[TaskFlow], resolution_s: float) -> Events:
    t_s = np.concatenate([np.zeros(0), *times])
    order = np.argsort(t_s, kind="stable")
    flow = np.concatenate([np.zeros(0, np.int64), *numbers]).astype(np.int64)[order]
    return Events(t_s[order], flow, np.concatenate([np.zeros(0, np.int64), *gains])[order], tuple(flows), resolution_s)


def _learned(paths: RunPaths, run: Run) -> tuple[list[tuple[float, float]], str]:
    """Times and accuracies of the steps of the first worker; without accuracies, losses."""
    task = "worker:0"
    if task not in run.tasks:
        return [], "loss"
    table = read_parquet(paths.steps(task))
    what = next((name for name in _LEARNED if name in table.column_names), "")
    if not what:
        return [], "loss"
    clock = run.manifest.clocks[run.tasks[task].host]
    t_s = (to_controller_ns(clock, table.column("end_mono_ns").to_numpy()) - run.origin_ns) / 1e9
    values = table.column(what).to_numpy(zero_copy_only=False).astype(float)
    return [(t, v) for t, v in zip(t_s.tolist(), values.tolist(), strict=True) if np.isfinite(v)], what
