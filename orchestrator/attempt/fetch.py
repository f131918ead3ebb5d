"""Fetches the files of an attempt from its hosts, verifies and seals them: the run directory is complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from driple.contracts.errors import CorruptRun, RunFailed
from driple.contracts.formats.task_files import SAMPLER_LOG, STDERR_LOG, STDOUT_LOG, STEPS_FILE
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import FAILED, SEALED, Manifest, TaskRecord
from driple.contracts.protocol import requests
from driple.contracts.run_dir import PACKETS, RunPaths, file_name, replacing
from driple.orchestrator.attempt.attempt import Attempt, FinishedAttempt
from driple.orchestrator.attempt.failure import AttemptError, StoppedError
from driple.orchestrator.attempt.packet_capture import seal_capture
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import AgentClient

PARTIAL = ".partial"
QUALITY = ("priority", "loop", "sources", "tables")
KEPT_LOG_BYTES = 4 * 1024 * 1024  # only the end of a longer log is kept


@dataclass(frozen=True)
class Stage:
    """The temporary folder of an attempt, beside the run directory."""

    paths: RunPaths  # of the attempt
    final: RunPaths

    @classmethod
    def make(cls, output: Path, experiment: str, run_id: str, attempt: int) -> Stage:
        paths = RunPaths(output, experiment, f".{run_id}.{attempt}{PARTIAL}")
        shutil.rmtree(paths.root, ignore_errors=True)
        for folder in ("trace", "steps", "graph", "logs"):
            (paths.root / folder).mkdir(parents=True)
        return cls(paths, RunPaths(output, experiment, run_id))

    def discard(self) -> None:
        shutil.rmtree(self.paths.root, ignore_errors=True)

    def place(self) -> None:
        """Moves it into place. The folder of an earlier attempt is removed only afterwards."""
        old = self.final.root.with_name(f".{self.final.root.name}.old{PARTIAL}")
        _remove(old)
        with suppress(FileNotFoundError):
            self.final.root.rename(old)
        self.paths.root.rename(self.final.root)
        _remove(old)


def remove_partials(output: Path, experiment: str) -> None:
    """Removes temporary folders of a controller that was killed."""
    folder = RunPaths(output, experiment, "").root
    for left in folder.glob(f".*{PARTIAL}"):
        _remove(left)


def previous_attempts(final: RunPaths) -> int:
    """The number of earlier attempts."""
    try:
        return Manifest.read(final.manifest).attempt
    except CorruptRun:
        return 0


def fetch(ended: FinishedAttempt, clients: dict[str, AgentClient], stage: Stage) -> dict[str, str]:
    """Fetches every file, verifies it, and returns the checksums by path in the run directory."""
    measured: list[int] = []
    for state in ended.tasks:
        if state.is_worker:
            source, warmup = f"{state.place.out}/{STEPS_FILE}", ended.job.run.measurement.warmup_steps
            steps = requests.Steps(source=source, target=state.place.steps, warmup=warmup)
            told = state.client.ask(steps, timeout_s=120.0)
            if told.measured_start_mono_ns is None or told.measured_end_mono_ns is None:
                raise AttemptError(f"{state.where} left {told.rows} steps, none of them after the warm-up")
            state.steps = told.rows
            clock = ended.clocks[state.client.name]
            measured += map(clock.to_controller, (told.measured_start_mono_ns, told.measured_end_mono_ns))
    check_cover(ended, min(measured), max(measured))
    with ThreadPoolExecutor(max_workers=max(1, len(clients))) as pool:
        for _ in pool.map(lambda name: _fetch_host(name, ended, clients[name], stage), clients):
            pass
    with replacing(stage.paths.job) as stream:
        json.dump(to_plain(ended.job), stream, indent=1)
    return {
        str(path.relative_to(stage.paths.root)): _sha256(path)
        for path in sorted(stage.paths.root.rglob("*"))
        if path.is_file()
    }


def check_cover(ended: FinishedAttempt, begin_ns: int, end_ns: int) -> None:
    """Raises AttemptError unless every trace spans the measured part, given on the controller's clock."""
    for state in ended.tasks:
        assert state.summary is not None  # else the attempt has failed
        clock = ended.clocks[state.client.name]
        slack_ns = 2e9 / ended.job.run.measurement.sampling_hz + 2 * clock.bound_ns
        late_s = (clock.to_controller(state.summary.first_mono_ns) - begin_ns - slack_ns) * 1e-9
        early_s = (end_ns - clock.to_controller(state.summary.last_mono_ns) - slack_ns) * 1e-9
        # A worker that was done before the others has nothing more to be seen.
        if late_s > 0 or (early_s > 0 and not state.is_worker):
            how = f"began {late_s:.2f} s after" if late_s > 0 else f"ended {early_s:.2f} s before"
            raise AttemptError(f"the trace of {state.where} {how} the measured part; increase warmup_steps")


def _fetch_host(name: str, ended: FinishedAttempt, client: AgentClient, stage: Stage) -> None:
    folder = ended.folders[name]
    captures = [capture for capture in ended.captures if capture.client is client]
    for capture in captures:
        seal_capture(capture)
    sums = client.ask(requests.Sums(folder=folder), timeout_s=300.0).files
    for state in ended.tasks:
        if state.client.name != name:
            continue
        wanted = {
            state.place.trace: stage.paths.trace(state.task),
            state.place.trace.replace(".parquet", ".flows.parquet"): stage.paths.flows(state.task),
        }
        if state.is_worker:
            wanted[state.place.steps] = stage.paths.steps(state.task)
        if state.place.graph:
            wanted[state.place.graph] = stage.paths.graph("worker")
        for remote, local in wanted.items():
            _get(remote, local, client, folder, sums)
        fetch_log(state, client, stage, sums)
    for capture in captures:
        target = stage.paths.packets(name)
        target.parent.mkdir(exist_ok=True)
        _get(capture.packets, target, client, folder, sums)


def fetch_log(state: TaskState, client: AgentClient, stage: Stage, sums: dict[str, requests.FileSum]) -> None:
    """Joins the output of a task and of its sampler in one file."""
    target = stage.paths.log(state.task)
    parts = []
    for part in (STDOUT_LOG, STDERR_LOG, SAMPLER_LOG):
        relative = f"tasks/{file_name(state.task)}/{part}"
        if relative in sums and sums[relative].size:
            beside = target.with_suffix(f".{part}")
            client.host.get(f"{state.place.out}/{part}", beside)
            content = beside.read_bytes()[-KEPT_LOG_BYTES:]
            beside.unlink()
            parts.append(f"== {part}\n".encode() + content)
    target.write_bytes(b"\n".join(parts))


def completed(manifest: Manifest, ended: FinishedAttempt) -> Manifest:
    """The manifest of a successful run."""
    return replace(
        manifest,
        tasks=tuple(task_record(state) for state in ended.tasks),
        clocks=ended.clocks,
        ended_real_s=time.time(),
        versions={**manifest.versions, **ended.versions},
        measured_network=ended.links.measured,
        network_done_by=ended.links.done_by,
        network_not_as_asked=manifest.network_not_as_asked or ended.links.mismatch,
        trained_with=_trained_with(ended.tasks),
    )


def _trained_with(tasks: Sequence[TaskState]) -> dict[str, str]:
    """What the workers used: one value where all agree, else a value for each."""
    told = {state.task: state.finished.ran for state in tasks if state.is_worker and state.finished is not None}
    found: dict[str, str] = {}
    for key in dict.fromkeys(key for ran in told.values() for key in ran):
        values = {task: ran[key] for task, ran in told.items() if key in ran}
        alike = set(values.values())
        found |= {key: alike.pop()} if len(alike) == 1 else {f"{task}/{key}": value for task, value in values.items()}
    return found


def seal(stage: Stage, manifest: Manifest, checksums: dict[str, str]) -> None:
    """Writes run.json last, and moves the folder into place."""
    replace(manifest, status=SEALED, checksums=checksums).write(stage.paths.manifest)
    stage.place()


def leave_failed(stage: Stage, manifest: Manifest, attempt: Attempt, error: BaseException) -> None:
    """Writes logs and the reason into the run directory. An attempt that the user stopped leaves nothing."""
    if isinstance(error, StoppedError) or not isinstance(error, RunFailed):
        stage.discard()
        return
    with suppress(OSError):  # a full disk: the first error counts
        _leave_failed(stage, manifest, attempt, error)


def _leave_failed(stage: Stage, manifest: Manifest, attempt: Attempt, error: RunFailed) -> None:
    for state in attempt.states.values():
        if state.client.lost is None:
            with suppress(RunFailed):
                sums = state.client.ask(requests.Sums(folder=state.place.run_folder), timeout_s=60.0).files
                fetch_log(state, state.client, stage, sums)
    for folder in ("trace", "steps", "graph", PACKETS):  # incomplete
        shutil.rmtree(stage.paths.root / folder, ignore_errors=True)
    stage.paths.job.unlink(missing_ok=True)
    failed = replace(
        manifest,
        status=FAILED,
        failure=str(error)[:2000],
        tasks=tuple(task_record(state) for state in attempt.states.values()),
        ended_real_s=time.time(),
    )
    failed.write(stage.paths.manifest)
    stage.place()


def task_record(state: TaskState) -> TaskRecord:
    """The record of a task for run.json."""
    quality = {} if state.summary is None else {key: getattr(state.summary, key) for key in QUALITY}
    return TaskRecord(
        task=state.task,
        host=state.client.name,
        exit_code=state.exit_code,
        last_words=state.words,
        steps=state.steps if state.is_worker else 0,
        started_by=state.way,
        traffic_source=state.traffic_source,
        quality=quality,
    )


def _get(remote: str, local: Path, client: AgentClient, folder: str, sums: dict[str, requests.FileSum]) -> None:
    """Fetches one file of an attempt, and compares its checksum."""
    relative = os.path.relpath(remote, folder)
    if relative not in sums:
        raise RunFailed(f"{client.name}: the run left no {relative}")
    client.host.get(remote, local)
    if _sha256(local) != sums[relative].sha256:
        raise RunFailed(f"{client.name}: {relative} did not arrive as it was sent")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
