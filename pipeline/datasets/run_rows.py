"""Converts a run directory to the rows of its tasks, or to the reason why it cannot be used.

An engine maps `work` over the runs, possibly in other processes or on other machines.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import CorruptRun, DripleError
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.formats.dataset import (
    BACKGROUND_LOAD_FLAG,
    LOOPBACK_FLAG,
    MEASURED,
    MISMATCH_FLAG,
    OPS,
    SHARE_FLAG,
    SIMULATED,
)
from driple.contracts.json_values import read_json_file, to_plain
from driple.contracts.manifest import Manifest, TaskRecord, network_as_specified, on_loopback
from driple.contracts.metrics import RESOURCES
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU
from driple.contracts.strategy import FRAMEWORKS, STRATEGIES
from driple.contracts.zoo import MODELS
from driple.pipeline.datasets.dataset_file import Graph, Row, check, graph_key, one_line
from driple.pipeline.datasets.splits import architecture_side, random_side

if TYPE_CHECKING:
    from driple.pipeline.traces.load_run import Run

RULES_VERSION = 3
"""Version of the rules for metrics, graphs and splits. An increase recomputes all runs whose traces still exist."""

WORKER = "worker"
_STATISTICS = (
    *("pattern", "bursts", "burst_s_median", "burst_s_spread", "idle_s_median", "idle_s_spread"),
    *("period_s", "refresh_s"),
)


def network_reason(why: str | None) -> str:
    """Why a run on another network than that of its setting is set aside."""
    detail = f" ({why})" if why else ""
    return (
        f"its tasks did not communicate over the network of the setting{detail}; driple-build-dataset "
        "--include-loopback uses it anyway"
    )


@dataclass(frozen=True)
class Request:
    """A run to be processed."""

    folder: str
    """Absolute, and the same on every worker of a cluster."""
    inputs_sha256: str
    """Of its run.json when the build began."""


@dataclass(frozen=True)
class RunRows:
    """The rows of a run."""

    rows: tuple[Row, ...]
    graphs: Mapping[str, Graph]
    rules_version: int = RULES_VERSION


@dataclass(frozen=True)
class SetAside:
    """Why a run gave no rows."""

    reason: str
    traceback: str | None = None
    """Only for unexpected errors."""


Outcome = RunRows | SetAside


def work(request: Request) -> Outcome:
    """The rows of a run, or its faults, so that one run does not stop the others. Raises ImportError."""
    try:
        return rows_of(Path(request.folder), request.inputs_sha256)
    except DripleError as error:
        return SetAside(_without(request.folder, str(error)))
    except OSError as error:
        return SetAside(_without(request.folder, f"{error.filename or 'a file'}: {error.strerror or error}"))
    except ImportError:
        raise
    except Exception as error:  # a fault that no rule covers
        found = traceback.format_exc()
        return SetAside(f"unexpected {type(error).__name__}: {one_line(error)}", found)


def inputs_sha256(manifest: Path) -> str:
    """The hash of run.json, which holds the checksums of the other files. Raises CorruptRun if unreadable."""
    try:
        if not manifest.is_file():
            raise CorruptRun(f"{manifest}: {'not a regular file' if manifest.exists() else 'missing'}")
        return hashlib.sha256(manifest.read_bytes()).hexdigest()
    except OSError as error:
        raise CorruptRun(f"{manifest}: {error.strerror}") from None


def rows_of(folder: Path, inputs: str) -> RunRows:
    """A row for each task of the run. Raises CorruptRun if the run cannot be used."""
    from driple.pipeline.traces.load_run import load_run

    paths = RunPaths(folder.parent, "", folder.name)
    if not folder.is_dir():
        raise CorruptRun("the worker cannot see this folder: all workers of a cluster need the traces at the same path")
    if inputs_sha256(paths.manifest) != inputs:
        raise CorruptRun("run.json changed during the build")
    run = load_run(folder)
    manifest = run.manifest
    graph, about = _graph(paths, manifest)
    shared = {**_identity(manifest), **_provenance(manifest, inputs), **about}
    job = read_json_file(paths.job, JobSpec.from_json)
    rows = tuple({**shared, **_task(manifest, record, job), **_metrics(run, record.task)} for record in manifest.tasks)
    try:
        check(rows)
    except ValueError as error:
        raise CorruptRun(str(error)) from None
    return RunRows(rows, {} if about["graph"] is None else {about["graph"]: graph})


def _identity(manifest: Manifest) -> Row:
    run = manifest.run
    workload: Row = to_plain(run.workload)
    model = MODELS.get(run.workload.model)
    family = model.family if model else run.workload.model
    measurement = run.measurement
    return {
        **workload,
        "topology": run.workload.topology if STRATEGIES[run.workload.strategy].has_topology else None,
        "setting": str(run.setting),
        "family": family,
        **{f"network_{name}": value for name, value in vars(run.network).items()},
        "placement": _json(run.together),
        "steps": measurement.steps,
        "duration_s": measurement.duration_s,
        "until_pct": measurement.until_pct,
        "warmup_steps": measurement.warmup_steps,
        "sampling_hz": measurement.sampling_hz,
        "threads": measurement.threads,
        "seed": run.seed,
        "repetition": run.repetition,
        "cores_per_host": run.cores_per_host,
        "split_architecture": architecture_side(family),
        "split_random": random_side(run.workload),
    }


def _provenance(manifest: Manifest, inputs: str) -> Row:
    return {
        "run_id": manifest.run_id,
        "provenance": SIMULATED if manifest.is_simulated else MEASURED,
        "inputs_sha256": inputs,
        "rules_version": RULES_VERSION,
        "attempt": manifest.attempt,
        "started_real_s": manifest.started_real_s,
        "git_commit": manifest.git_commit,
        "versions": _json(manifest.versions),
        "measured_rate_mbit": manifest.measured_network.get("rate_mbit"),
        "measured_loss_pct": manifest.measured_network.get("loss_pct"),
        "network_done_by": _json(manifest.network_done_by),
    }


def _task(manifest: Manifest, record: TaskRecord, job: JobSpec) -> Row:
    row: Row = {"task": record.task, "role": record.task.partition(":")[0], "traffic_source": record.traffic_source}
    clock = manifest.clocks.get(record.host)
    row["clock_bound_s"] = None if clock is None else clock.bound_ns / 1e9
    loop = record.quality.get("loop")
    row["missed_ticks_pct"] = loop.get("missed_pct") if isinstance(loop, dict) else None
    host = manifest.hosts.get(record.host)
    if host is None:
        return row
    gpu = job.task(record.task).gpu
    known = gpu is not None and gpu < len(host.gpus)
    return {
        **row,
        "host": host.hostname,
        "host_kind": host.kind,
        "host_kernel": host.kernel,
        "host_cores": host.cores,
        "host_memory_bytes": host.memory_bytes,
        **_fingerprint(host.fingerprint),
        "device": CPU if manifest.on_cpu else host.gpus[gpu or 0] if known else None,
    }


def _fingerprint(found: Fingerprint | None) -> Row:
    if found is None:
        return {}
    return {f"fingerprint_{name}": value for name, value in vars(found).items()} | {
        "fingerprint_spread_pct": found.compared_spread_pct
    }


def _metrics(run: Run, task: str) -> Row:
    from driple.pipeline.bursts.task_metrics import task_metrics
    from driple.pipeline.traces import background_load

    found = task_metrics(run, task)
    beyond = background_load.background_cpu_pct(run, task)
    row: Row = {**found.targets, "step_s": found.step_s, "foreign_cpu_pct": beyond}
    row |= _start_up(run, task, found.step_s)
    for resource in RESOURCES:
        bib = found.bibs.get(resource.key)
        if bib is None:
            continue
        key, amount = resource.key, f"{resource.key}_burst_{resource.amount_suffix}"
        row |= {f"{key}_{name}": getattr(bib, name) for name in _STATISTICS}
        row |= {f"{amount}_median": bib.burst_amount_median, f"{amount}_spread": bib.burst_amount_spread}
        row[f"{key}_idle_{resource.amount_suffix}"] = bib.idle_amount
    other, loopback = not network_as_specified(run.manifest), on_loopback(run.manifest)
    about_run = {
        LOOPBACK_FLAG: other and loopback,
        MISMATCH_FLAG: other and not loopback,
        SHARE_FLAG: run.manifest.share_not_as_asked is not None,
        BACKGROUND_LOAD_FLAG: beyond is not None and beyond > background_load.LIMIT_PCT,
    }
    return {**row, "flags": [*(flag for flag, holds in about_run.items() if holds), *found.flags]}


def _start_up(run: Run, task: str, step_s: float | None) -> Row:
    """From the start of the first task to the end of the worker's first step, without the usual time of one step.

    The clocks of the hosts are compared right before the first task is started: that is where the time begins. Empty
    for a server, and in a simulation, which has no start-up.
    """
    end_s = run.tasks[task].first_step_end_s
    if end_s is None or step_s is None or run.manifest.is_simulated:
        return {}
    clocks = run.manifest.clocks.values()
    launch_ns = max(clock.to_controller(clock.before.host_ns) for clock in clocks)
    start_s = end_s - (launch_ns - run.origin_ns) / 1e9 - step_s
    ways = {record.started_by for record in run.manifest.tasks if record.task == task}
    return {"start_s": start_s, "started_by": ways.pop() or None} if start_s > 0 else {}


def _graph(paths: RunPaths, manifest: Manifest) -> tuple[Graph, Row]:
    """The worker's graph. The rows of servers have it too: they have none of their own.

    Empty, and null in the row, for a run of a release that wrote none.
    """
    path = paths.graph(WORKER)
    checksum = manifest.checksums.get(str(path.relative_to(paths.root)))
    if checksum is None and not FRAMEWORKS[manifest.run.workload.framework].graph_since_start:
        return {}, {"graph": None}
    if checksum is None:
        raise CorruptRun(f"graph/{path.name}: missing")
    if checksum not in _GRAPHS:
        if len(_GRAPHS) >= _GRAPHS_KEPT:
            _GRAPHS.clear()
        _GRAPHS[checksum] = _read_graph(path)
    return _GRAPHS[checksum]


# Graphs by the checksum of their file. Repetitions of a workload share it, and reading it is half of the work.
_GRAPHS: dict[str, tuple[Graph, Row]] = {}
_GRAPHS_KEPT = 64


def _read_graph(path: Path) -> tuple[Graph, Row]:
    import numpy as np

    from driple.pipeline.graph.public import read_graph

    found = read_graph(path)
    graph = {
        "op_type": [sys.intern(op) for op in found.ops],  # few names, many ops
        "op_bytes": np.asarray(found.bytes, dtype=np.float64),
        "op_flops": np.asarray(found.flops, dtype=np.float64),
        "edge_src": found.edges[:, 0].astype(np.int32),
        "edge_dst": found.edges[:, 1].astype(np.int32),
    }
    about: Row = {
        "graph": graph_key(OPS, graph),
        "graph_kind": OPS,
        "nodes": len(found.ops),
        "edges": len(found.edges),
        "ops_unsized": found.unsized,
        "ops_left_out": found.left_out,
        "bytes_received": found.bytes_received,
        "bytes_sent": found.bytes_sent,
        "bytes_busiest": found.bytes_busiest,
    }
    return graph, about


def _json(value: Any) -> str:
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"))


def _without(folder: str, text: str) -> str:
    """The text without the folder, which the report shows in front of it."""
    return text.replace(f"{folder}/", "").replace(f"{folder}: ", "")
