"""Schedules runs: order, parallel runs on disjoint hosts, retries with back-off, and a clean stop at any time.

One thread schedules; each run has its own thread for its attempts. An attempt writes into its own folder, which is
moved into place when it is complete.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from driple.contracts.errors import BadInput, HostLost, HostRefused, RunFailed
from driple.contracts.folder_lock import only_one
from driple.contracts.manifest import RUNNING, HostRecord, Manifest
from driple.contracts.run_dir import RunPaths
from driple.orchestrator.attempt import fetch
from driple.orchestrator.attempt.attempt import Attempt
from driple.orchestrator.attempt.data_network import Links
from driple.orchestrator.attempt.failure import AttemptError, PermanentError, StoppedError
from driple.orchestrator.attempt.prepare import Request, read_code
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import HostSpec, Inventory
from driple.orchestrator.config.placement import PlacedTask, place, together
from driple.orchestrator.hosts.agent_client import AgentClient, Clients
from driple.orchestrator.hosts.host_pool import HostPool
from driple.orchestrator.hosts.registry import Cluster
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.sweep.provenance import Provenance

log = logging.getLogger(__name__)

HOST_PATIENCE_S = 600.0  # how long runs wait for lost hosts before they fail
MOST_RETRY_WAIT_S = 300.0
MOST_LOST_IN_RUN = 3  # a run during which more hosts were lost fails
TICK_S = 0.2
BAD_INPUT = 2  # exit code of a task that refused its input


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep that are not part of the experiment."""

    output: Path
    fail_fast: bool = False
    cold: bool = False
    parallel: int | None = None  # maximum number of parallel runs; None for the default of the backend
    host_patience_s: float = HOST_PATIENCE_S
    stop: threading.Event = field(default_factory=threading.Event)
    """When set, the current runs are stopped cleanly and no other is started."""


@dataclass
class RunResult:
    """How one run of a sweep ended."""

    run: PlannedRun
    status: str  # `sealed`, `failed`, `skipped` (done before) or `not done`
    attempts: int = 0  # number of its last attempt, as in run.json: counts those of earlier sweeps and lost hosts too
    seconds: float = 0.0
    steps: int = 0  # of a worker, including warm-up
    failure: RunFailed | None = None
    hosts: tuple[str, ...] = ()
    directory: Path | None = None  # its folder of traces; of a failed run, of logs


class Watcher(Protocol):
    """Receives the progress of a sweep. Called from several threads."""

    def begin(self, total: int, done: int) -> None: ...
    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None: ...
    def progress(self, run: PlannedRun, text: str) -> None: ...
    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None: ...
    def ended(self, result: RunResult) -> None: ...
    def tick(self) -> None: ...


@dataclass
class _Job:
    run: PlannedRun
    attempts: int = 0  # in this sweep, without those that lost a host
    number: int = 0  # of its last attempt
    not_before: float = 0.0
    placed: tuple[PlacedTask, ...] = ()
    attempt: Attempt | None = None
    lost_in_run: int = 0  # hosts that were lost during its attempts
    seconds: float = 0.0
    failure: RunFailed | None = None
    steps: int = 0
    hosts: tuple[str, ...] = field(default=())


class Sweep:
    """Runs the given part of a plan."""

    def __init__(
        self, experiment: Experiment, runs: Sequence[PlannedRun], cluster: Cluster, pool: HostPool,
        options: SweepOptions, watcher: Watcher, provenance: Provenance,
    ) -> None:  # fmt: skip
        self._experiment = experiment
        self._cluster = cluster
        self._pool = pool
        self._options = options
        self._watcher = watcher
        self._provenance = provenance
        self._links = Links(cluster.shaper, pool.specs)
        self._waiting = [_Job(run) for run in runs]
        self._running: list[_Job] = []
        # Not a SimpleQueue: its `get` never ends if a signal handler outlasts its time limit.
        self._ended: queue.Queue[_Job] = queue.Queue()
        self._results: dict[str, RunResult] = {}
        self._stopping = False
        self._parallel = options.parallel or cluster.parallel or len(pool.specs)

    def stop(self) -> None:
        self._stopping = True
        for job in list(self._running):
            if job.attempt is not None:
                job.attempt.interrupt()

    def go(self) -> list[RunResult]:
        """Runs them; returns a result for each, in the order of the plan."""
        order = [job.run for job in self._waiting]
        while self._running or (self._waiting and not self._stopping):
            if self._options.stop.is_set() and not self._stopping:
                self.stop()
            if not self._stopping:
                self._start_ready_runs()
            self._handle_ended_run()
            self._watcher.tick()
        self._links.clear(self._pool.open_clients())
        return [self._results.get(run.id) or RunResult(run, "not done") for run in order]

    def _start_ready_runs(self) -> None:
        now = time.monotonic()
        for job in list(self._waiting):
            if len(self._running) >= self._parallel:
                return
            if job.not_before > now:
                continue
            placed = self._place(job.run)
            if placed is None:
                if not self._can_run_later(job.run):
                    self._waiting.remove(job)
                    problems = "; ".join(self._pool.problems()) or "no host is left"
                    self._give_up(job, job.failure or RunFailed(f"no hosts for it: {problems}"))
                continue
            self._waiting.remove(job)
            self._running.append(job)
            job.placed = placed
            job.hosts = tuple(dict.fromkeys(item.host for item in placed))
            self._pool.lend(job.hosts)
            threading.Thread(target=self._do, args=(job,), name=f"run {job.run.id}", daemon=True).start()

    def _place(self, run: PlannedRun) -> tuple[PlacedTask, ...] | None:
        return self._placed_on(run, self._pool.free())

    def _can_run_later(self, run: PlannedRun) -> bool:
        return self._placed_on(run, self._pool.usable_later(self._options.host_patience_s)) is not None

    def _placed_on(self, run: PlannedRun, hosts: tuple[HostSpec, ...]) -> tuple[PlacedTask, ...] | None:
        """Places a run on these hosts if the same tasks share a host as in its identity."""
        if not hosts:
            return None
        try:
            placed = place(run.spec.setting, self._experiment.policy, Inventory(kind=self._cluster.kind, hosts=hosts))
        except BadInput:
            return None
        return placed if together(placed) == run.spec.together else None

    def _handle_ended_run(self) -> None:
        """Waits a moment for a run to end, and handles its outcome."""
        try:
            job = self._ended.get(timeout=TICK_S)
        except queue.Empty:
            return
        self._running.remove(job)
        self._pool.give_back(job.hosts)
        if job.failure is None:
            self._finish(job, "sealed")
        elif self._stopping or isinstance(job.failure, StoppedError):
            self._finish(job, "not done")
        else:
            self._retry_or_give_up(job)

    def _retry_or_give_up(self, job: _Job) -> None:
        assert job.failure is not None
        if isinstance(job.failure, HostLost | HostRefused) and job.lost_in_run <= MOST_LOST_IN_RUN:
            # Not the fault of the run: it uses other hosts, or waits. Unless it happens again and again.
            job.attempts -= 1
            wait = 0.0
            if self._place(job.run) is None and not self._can_run_later(job.run):
                self._give_up(job, job.failure)
                return
        elif job.attempts > self._experiment.retries or _is_permanent(job.failure):
            self._give_up(job, job.failure)
            return
        else:
            wait = min(MOST_RETRY_WAIT_S, self._experiment.retry_wait_s * 2 ** (job.attempts - 1))
        self._watcher.attempt_failed(job.run, job.failure, wait)
        job.not_before = time.monotonic() + wait
        self._waiting.insert(0, job)

    def _give_up(self, job: _Job, error: RunFailed) -> None:
        job.failure = error
        self._watcher.attempt_failed(job.run, error, None)
        self._finish(job, "failed")
        if self._options.fail_fast:
            self.stop()

    def _finish(self, job: _Job, status: str) -> None:
        failure = job.failure if status != "sealed" else None
        folder = RunPaths(self._options.output, self._experiment.name, job.run.id).root
        result = RunResult(job.run, status, job.number, job.seconds, job.steps, failure, job.hosts, folder)
        self._results[job.run.id] = result
        self._watcher.ended(result)

    # In the thread of the run.

    def _do(self, job: _Job) -> None:
        job.attempts += 1
        began = time.monotonic()
        job.failure = None
        try:
            self._attempt(job)
        except RunFailed as error:
            job.failure = error
        except OSError as error:
            job.failure = RunFailed(f"{error.filename or self._options.output}: {error.strerror or error}")
        except Exception as error:
            log.exception("run %s", job.run.id)
            job.failure = RunFailed(f"unexpected {type(error).__name__}: {error}; the traceback is above")
        finally:
            job.attempt = None
            job.seconds = time.monotonic() - began
            self._ended.put(job)

    def _attempt(self, job: _Job) -> None:
        run = job.run
        final = RunPaths(self._options.output, self._experiment.name, run.id)
        job.number = number = fetch.previous_attempts(final) + 1
        self._watcher.started(run, job.hosts, number)
        clients = self._pool.clients(job.hosts)
        manifest = Manifest(
            run=run.spec,
            run_id=run.id,
            status=RUNNING,
            attempt=number,
            hosts=self._hosts(clients),
            started_real_s=time.time(),
            versions=self._provenance.versions,
            git_commit=self._provenance.git_commit,
            network_not_as_asked=None if run.spec.setting.one_machine else self._cluster.fallback_reason,
            share_not_as_asked=None if run.spec.cores_per_host is None else self._cluster.share_fault,
        )
        stage = fetch.Stage.make(self._options.output, self._experiment.name, run.id, number)
        attempt = Attempt(
            Request(
                spec=run.spec,
                run_id=run.id,
                placed=job.placed,
                hosts=self._pool.specs,
                clients=clients,
                links=self._links,
                timeouts=self._experiment.timeouts,
                code=read_code(Path(self._experiment.source).parent, run.spec),
                cold=self._options.cold,
            ),
            lambda text: self._watcher.progress(run, text),
        )
        job.attempt = attempt
        if self._stopping:
            stage.discard()
            raise StoppedError("stopped by the user")
        try:
            ended = attempt.go()
            checksums = fetch.fetch(ended, clients, stage)
            manifest = replace(manifest, hosts=self._hosts(clients))  # now with what was found on them
            job.steps = max((state.steps for state in ended.tasks), default=0)
            fetch.seal(stage, fetch.completed(manifest, ended), checksums)
        except BaseException as error:
            job.lost_in_run += isinstance(error, HostLost)
            fetch.leave_failed(stage, manifest, attempt, error)
            raise
        finally:
            attempt.remove_folders()

    def _hosts(self, clients: Clients) -> dict[str, HostRecord]:
        return {name: self._host_record(client) for name, client in clients.items()}

    def _host_record(self, client: AgentClient) -> HostRecord:
        facts = client.facts
        return HostRecord(
            kind=self._cluster.kind,
            hostname=facts.hostname,
            kernel=facts.kernel,
            boot_id=facts.boot_id,
            cores=facts.cores,
            memory_bytes=facts.memory_bytes,
            python=facts.python,
            wall_clock_ahead_s=client.wall_clock_ahead_s,
            gpus=tuple(gpu.name or "" for gpu in (client.info and client.info.gpus) or ()),
            fingerprint=client.fingerprint,
            share=self._cluster.shares.get(client.name),
        )


def _is_permanent(failure: RunFailed) -> bool:
    """Whether a retry would fail in the same way, for example because a task refused its input."""
    if isinstance(failure, PermanentError):
        return True
    return isinstance(failure, AttemptError) and failure.origin is not None and failure.origin.exit_code == BAD_INPUT


def only_sweep(output: Path, experiment: str) -> AbstractContextManager[None]:
    """Locks the folder of an experiment. Raises BadInput if another controller has it."""
    return only_one(RunPaths(output, experiment, "").root, "driple-run")
