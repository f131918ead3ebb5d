"""One run directory to the rows of its tasks, or to the reason why it cannot be used.

This is what an engine maps over runs: a function of a folder, whose result is plain values and small arrays.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import CorruptRun, DripleError
from driple.contracts.formats.dataset import BACKGROUND_LOAD_FLAG, MEASURED, OPS, SIMULATED
from driple.contracts.json_values import read_json_file, to_plain
from driple.contracts.manifest import SEALED, Manifest, TaskRecord
from driple.contracts.metrics import RESOURCES
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU
from driple.contracts.zoo import MODELS
from driple.pipeline.datasets.dataset_file import Graph, Row, check, graph_key
from driple.pipeline.datasets.splits import architecture_side, random_side

if TYPE_CHECKING:
    from driple.pipeline.traces.load_run import Run

RULES_VERSION = 3
"""Of all that turns a run into rows: metrics, graphs, splits. A higher one recomputes every run that is still there."""

WORKER = "worker"
SIMULATED_KIND = "simulated"
"""Kind of a host whose tasks did not run but were computed."""


@dataclass(frozen=True)
class Request:
    """A run to be worked on."""

    folder: str
    """Absolute, and the same on every worker of a cluster."""
    inputs_sha256: str
    """Of its run.json when the build began."""


@dataclass(frozen=True)
class RunRows:
    """What a run gave."""

    rows: tuple[Row, ...]
    graphs: Mapping[str, Graph]
    rules_version: int = RULES_VERSION


@dataclass(frozen=True)
class SetAside:
    """Why a run gave nothing."""

    reason: str
    traceback: str | None = None
    """Where the reason is one that nobody foresaw."""


Outcome = RunRows | SetAside


def work(request: Request) -> Outcome:
    """Rows of a run. Never raises for what is wrong with it: one run must not stop the others.

    Raises:
        ImportError: a library is missing, which is not the run's fault.
    """
    try:
        return rows_of(Path(request.folder), request.inputs_sha256)
    except DripleError as error:
        return SetAside(_without(request.folder, str(error)))
    except OSError as error:
        return SetAside(_without(request.folder, f"{error.filename or 'a file'}: {error.strerror or error}"))
    except ImportError:
        raise
    except Exception as error:  # a file that no rule foresaw; said as what it is, with the place
        found = traceback.format_exc()
        return SetAside(f"unforeseen {type(error).__name__}: {_one_line(error)}", found)


def inputs_sha256(manifest: Path) -> str:
    """The hash of a run's inputs: of run.json, which holds the checksums of all the others.

    Raises:
        CorruptRun: it is no regular file (a pipe would be read for ever) or cannot be read.
    """
    try:
        if not manifest.is_file():
            raise CorruptRun(f"{manifest}: {'not a regular file' if manifest.exists() else 'missing'}")
        return hashlib.sha256(manifest.read_bytes()).hexdigest()
    except OSError as error:
        raise CorruptRun(f"{manifest}: {error.strerror}") from None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run that was sealed.

    Raises:
        CorruptRun: there is none, it cannot be read, or the run did not end well.
    """
    manifest = Manifest.read(folder / "run.json")
    if manifest.status != SEALED:
        why = f": {manifest.failure}" if manifest.failure else ""
        raise CorruptRun(f"the run is marked {manifest.status}{why}")
    return manifest


def rows_of(folder: Path, inputs: str) -> RunRows:
    """A row for every task of the run.

    Raises:
        CorruptRun: anything about the folder is not as it should be.
    """
    from driple.pipeline.traces.load_run import load_run

    paths = RunPaths(folder.parent, "", folder.name)
    if not folder.is_dir():
        raise CorruptRun("the worker does not see this folder: a cluster needs the traces at one path on every worker")
    if inputs_sha256(paths.manifest) != inputs:
        raise CorruptRun("run.json changed while the dataset was built")
    manifest = read_manifest(folder)
    _check_files(folder, manifest)
    _calm_arrow()
    run = load_run(folder)
    graph, about = _graph(paths, manifest)
    shared = {**_identity(manifest), **_provenance(manifest, inputs), **about}
    job = read_json_file(paths.job, JobSpec.from_json)
    rows = tuple({**shared, **_task(manifest, record, job), **_metrics(run, record.task)} for record in manifest.tasks)
    try:
        check(rows)
    except ValueError as error:
        raise CorruptRun(str(error)) from None
    return RunRows(rows, {about["graph"]: graph})


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Every file that the manifest names is an ordinary one inside the folder: a pipe would be read for ever."""
    top = folder.resolve()
    for name in manifest.checksums:
        path = folder / name
        if not path.resolve().is_relative_to(top):
            raise CorruptRun(f"{name}: outside the run's folder")
        if not path.is_file():
            raise CorruptRun(f"{name}: {'not a regular file' if path.exists() else 'missing'}")


def _identity(manifest: Manifest) -> Row:
    run = manifest.run
    workload: Row = to_plain(run.workload)
    model = MODELS.get(run.workload.model)
    family = model.family if model else run.workload.model
    measurement = run.measurement
    return {
        **workload,
        "setting": str(run.setting),
        "family": family,
        "network_rate_mbit": run.network.rate_mbit,
        "network_delay_ms": run.network.delay_ms,
        "network_loss_pct": run.network.loss_pct,
        "placement": _json(run.together),
        "steps": measurement.steps,
        "duration_s": measurement.duration_s,
        "warmup_steps": measurement.warmup_steps,
        "sampling_hz": measurement.sampling_hz,
        "threads": measurement.threads,
        "seed": run.seed,
        "repetition": run.repetition,
        "split_architecture": architecture_side(family),
        "split_random": random_side(run.workload),
    }


def _provenance(manifest: Manifest, inputs: str) -> Row:
    simulated = any(host.kind == SIMULATED_KIND for host in manifest.hosts.values())
    return {
        "run_id": manifest.run_id,
        "provenance": SIMULATED if simulated else MEASURED,
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
        "device": CPU if manifest.run.setting.device == CPU else host.gpus[gpu or 0] if known else None,
    }


def _metrics(run: Run, task: str) -> Row:
    from driple.pipeline.bursts.task_metrics import task_metrics
    from driple.pipeline.traces import background_load

    found = task_metrics(run, task)
    beyond = background_load.foreign_cpu_pct(run, task)
    row: Row = {**found.targets, "step_s": found.step_s, "foreign_cpu_pct": beyond}
    for resource in RESOURCES:
        bib = found.bibs.get(resource.key)
        if bib is None:
            continue
        key, amount = resource.key, f"{resource.key}_burst_{resource.amount_suffix}"
        row |= {
            f"{key}_pattern": bib.pattern,
            f"{key}_bursts": bib.bursts,
            f"{key}_burst_s_median": bib.burst_s_median,
            f"{key}_burst_s_spread": bib.burst_s_spread,
            f"{key}_idle_s_median": bib.idle_s_median,
            f"{key}_idle_s_spread": bib.idle_s_spread,
            f"{amount}_median": bib.burst_amount_median,
            f"{amount}_spread": bib.burst_amount_spread,
            f"{key}_idle_{resource.amount_suffix}": bib.idle_amount,
            f"{key}_period_s": bib.period_s,
            f"{key}_refresh_s": bib.refresh_s,
        }
    busy = [BACKGROUND_LOAD_FLAG] if beyond is not None and beyond > background_load.LIMIT_PCT else []
    return {**row, "flags": [*busy, *found.flags]}


def _graph(paths: RunPaths, manifest: Manifest) -> tuple[Graph, Row]:
    """The worker's graph, which every row of the run has: a server serves this graph and has none of its own."""
    path = paths.graph(WORKER)
    checksum = manifest.checksums.get(str(path.relative_to(paths.root)))
    if checksum is None:
        raise CorruptRun(f"graph/{path.name}: missing")
    if checksum not in _GRAPHS:
        if len(_GRAPHS) >= _GRAPHS_KEPT:
            _GRAPHS.clear()
        _GRAPHS[checksum] = _read_graph(path)
    return _GRAPHS[checksum]


# By the checksum of their file: repetitions of a workload have the same one, and reading it is half of the work.
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


@lru_cache(maxsize=1)
def _calm_arrow() -> None:
    """One thread each: the processes of an engine are as many as there are processors."""
    import pyarrow

    pyarrow.set_cpu_count(1)


def _json(value: Any) -> str:
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"))


def _without(folder: str, text: str) -> str:
    """The report names the folder once, in front."""
    return text.replace(f"{folder}/", "").replace(f"{folder}: ", "")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
