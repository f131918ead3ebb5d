"""Many runs: order, parallel runs on disjoint hosts, retries with back-off, resume, and an end at any moment.

One thread decides; each run has a thread of its own that does its attempts. What was sealed is never done again, what
was not is done from the beginning, in a folder of its own that is moved into place when it is whole.
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
from driple.orchestrator.attempt import fetch
from driple.orchestrator.attempt.attempt import Attempt
from driple.orchestrator.attempt.data_network import Links
from driple.orchestrator.attempt.failure import AttemptFailed, Hopeless, Interrupted
from driple.orchestrator.attempt.prepare import Request, read_code
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import Inventory
from driple.orchestrator.config.placement import Placed, place, together
from driple.orchestrator.hosts.agent_client import AgentClient, Clients
from driple.orchestrator.hosts.backends import Cluster
from driple.orchestrator.hosts.host_pool import Fleet
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.sweep.provenance import Provenance

log = logging.getLogger(__name__)

HOST_PATIENCE_S = 600.0
"""How long runs wait for hosts that are lost before they count as failed."""
MOST_RETRY_WAIT_S = 300.0
MOST_LOST_IN_RUN = 3
"""A run that takes its hosts down with it is given up after so many of them."""
TICK_S = 0.2
BAD_INPUT = 2
"""Exit code of a task that cannot use what it was given."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is done, beyond what the experiment says."""

    output: Path
    fail_fast: bool = False
    cold: bool = False
    parallel: int | None = None
    """At most so many runs at a time; None for the kind's own."""
    host_patience_s: float = HOST_PATIENCE_S


@dataclass
class Result:
    """How one run of a sweep ended."""

    run: PlannedRun
    status: str
    """`sealed`, `failed` or `not done`."""
    attempts: int = 0
    seconds: float = 0.0
    steps: int = 0
    """Of a worker, warm-up included."""
    failure: RunFailed | None = None
    hosts: tuple[str, ...] = ()


class Watcher(Protocol):
    """Who wants to see how a sweep goes. Called from several threads."""

    def begin(self, total: int, done: int) -> None: ...
    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None: ...
    def progress(self, run: PlannedRun, text: str) -> None: ...
    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None: ...
    def ended(self, result: Result) -> None: ...
    def tick(self) -> None: ...


@dataclass
class _Job:
    """A run on its way."""

    run: PlannedRun
    attempts: int = 0
    not_before: float = 0.0
    placed: tuple[Placed, ...] = ()
    attempt: Attempt | None = None
    lost_in_run: int = 0
    """How often a host was lost while it ran there."""
    began: float = 0.0
    seconds: float = 0.0
    failure: RunFailed | None = None
    outcome: str = ""
    steps: int = 0
    hosts: tuple[str, ...] = field(default=())


class Sweep:
    """Does the runs of a plan that are not done."""

    def __init__(
        self, experiment: Experiment, runs: Sequence[PlannedRun], cluster: Cluster, fleet: Fleet, options: Options,
        watcher: Watcher, provenance: Provenance,
    ) -> None:  # fmt: skip
        self._experiment = experiment
        self._cluster = cluster
        self._fleet = fleet
        self._options = options
        self._watcher = watcher
        self._provenance = provenance
        self._links = Links(cluster.shaper, fleet.specs)
        self._waiting = [_Job(run) for run in runs]
        self._running: list[_Job] = []
        self._ended: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._results: dict[str, Result] = {}
        self._stopping = False
        self._parallel = options.parallel or cluster.parallel or len(fleet.specs)

    def stop(self) -> None:
        """Ends the current runs cleanly and starts no other. May be called from a signal handler."""
        self._stopping = True
        for job in list(self._running):
            if job.attempt is not None:
                job.attempt.interrupt()

    def go(self) -> list[Result]:
        """Does them; a result for each run, in the order of the plan."""
        order = [job.run for job in self._waiting]
        while self._running or (self._waiting and not self._stopping):
            if not self._stopping:
                self._start_what_can()
            self._take_one()
            self._watcher.tick()
        self._links.clear(self._fleet.open_stations())
        return [self._results.get(run.id) or Result(run, "not done") for run in order]

    def _start_what_can(self) -> None:
        now = time.monotonic()
        for job in list(self._waiting):
            if len(self._running) >= self._parallel:
                return
            if job.not_before > now:
                continue
            placed = self._place(job.run)
            if placed is None:
                if not self._can_ever(job.run):
                    self._waiting.remove(job)
                    troubles = "; ".join(self._fleet.troubles()) or "no host is left"
                    self._give_up(job, job.failure or RunFailed(f"no hosts for it: {troubles}"))
                continue
            self._waiting.remove(job)
            self._running.append(job)
            job.placed = placed
            job.hosts = tuple(dict.fromkeys(item.host for item in placed))
            self._fleet.lend(job.hosts)
            threading.Thread(target=self._do, args=(job,), name=f"run {job.run.id}", daemon=True).start()

    def _place(self, run: PlannedRun) -> tuple[Placed, ...] | None:
        return self._placed_on(run, Inventory(kind="ssh", hosts=self._fleet.free()))

    def _can_ever(self, run: PlannedRun) -> bool:
        hopeful = self._fleet.hopeful(self._options.host_patience_s)
        return self._placed_on(run, Inventory(kind="ssh", hosts=hopeful)) is not None

    def _placed_on(self, run: PlannedRun, inventory: Inventory) -> tuple[Placed, ...] | None:
        """Places a run on these hosts as its identity asks: the same tasks together."""
        if not inventory.hosts:
            return None
        try:
            placed = place(run.spec.setting, self._experiment.policy, inventory)
        except BadInput:
            return None
        return placed if together(placed) == run.spec.together else None

    def _take_one(self) -> None:
        """Waits a moment for a run to end, and decides what becomes of it."""
        try:
            job = self._ended.get(timeout=TICK_S)
        except queue.Empty:
            return
        self._running.remove(job)
        self._fleet.give_back(job.hosts)
        if job.outcome == "sealed":
            self._finish(job, "sealed")
        elif self._stopping or isinstance(job.failure, Interrupted):
            self._finish(job, "not done")
        else:
            self._again_or_not(job)

    def _again_or_not(self, job: _Job) -> None:
        assert job.failure is not None
        if isinstance(job.failure, HostLost | HostRefused) and job.lost_in_run <= MOST_LOST_IN_RUN:
            # No fault of the run's: it goes elsewhere, or waits until the host is back. Unless it is always this run.
            job.attempts -= 1
            wait = 0.0
            if self._place(job.run) is None and not self._can_ever(job.run):
                self._give_up(job, job.failure)
                return
        elif job.attempts > self._experiment.retries or _hopeless(job.failure):
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
        result = Result(job.run, status, job.attempts, job.seconds, job.steps, failure, job.hosts)
        self._results[job.run.id] = result
        self._watcher.ended(result)

    # in the run's own thread

    def _do(self, job: _Job) -> None:
        job.attempts += 1
        job.began = time.monotonic()
        job.outcome, job.failure = "failed", None
        try:
            self._attempt(job)
            job.outcome = "sealed"
        except RunFailed as error:
            job.failure = error
        except OSError as error:
            job.failure = RunFailed(f"{error.filename or self._options.output}: {error.strerror or error}")
        except Exception as error:
            log.exception("run %s", job.run.id)
            job.failure = RunFailed(f"unexpected {type(error).__name__}: {error}; the traceback is above")
        finally:
            job.attempt = None
            job.seconds = time.monotonic() - job.began
            self._ended.put(job)

    def _attempt(self, job: _Job) -> None:
        run = job.run
        final = fetch.final_paths(self._options.output, self._experiment.name, run.id)
        number = fetch.previous_attempts(final) + 1
        self._watcher.started(run, job.hosts, number)
        stations = self._fleet.stations(job.hosts)
        manifest = Manifest(
            run=run.spec,
            run_id=run.id,
            status=RUNNING,
            attempt=number,
            hosts=self._hosts(stations),
            started_real_s=time.time(),
            versions=self._provenance.versions,
            git_commit=self._provenance.git_commit,
        )
        stage = fetch.Stage.make(self._options.output, self._experiment.name, run.id, number)
        attempt = Attempt(
            Request(
                spec=run.spec,
                run_id=run.id,
                placed=job.placed,
                hosts=self._fleet.specs,
                stations=stations,
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
            raise Interrupted("stopped by the user")
        try:
            ended = attempt.go()
            checksums = fetch.fetch(ended, stations, stage)
            manifest = replace(manifest, hosts=self._hosts(stations))  # by now they were looked at
            job.steps = max((state.steps for state in ended.tasks), default=0)
            fetch.seal(stage, fetch.completed(manifest, ended), checksums)
        except BaseException as error:
            job.lost_in_run += isinstance(error, HostLost)
            fetch.leave_failed(stage, manifest, attempt, error)
            raise
        finally:
            attempt.remove_folders()

    def _hosts(self, stations: Clients) -> dict[str, HostRecord]:
        return {name: self._host_record(station) for name, station in stations.items()}

    def _host_record(self, station: AgentClient) -> HostRecord:
        facts = station.facts
        return HostRecord(
            kind=self._cluster.kind,
            hostname=facts.hostname,
            kernel=facts.kernel,
            boot_id=facts.boot_id,
            cores=facts.cores,
            memory_bytes=facts.memory_bytes,
            python=facts.python,
            wall_clock_ahead_s=station.wall_clock_ahead_s,
            gpus=tuple(gpu.name or "" for gpu in (station.info and station.info.gpus) or ()),
        )


def _hopeless(failure: RunFailed) -> bool:
    """Whether another attempt must end as this one did: a task that refused its input will refuse it again."""
    if isinstance(failure, Hopeless):
        return True
    return isinstance(failure, AttemptFailed) and failure.blame is not None and failure.blame.exit_code == BAD_INPUT


def only_sweep(output: Path, experiment: str) -> AbstractContextManager[None]:
    """Keeps a second controller from the same runs. Raises BadInput, as `only_one` does."""
    return only_one(fetch.final_paths(output, experiment, "").root, "driple-run")
