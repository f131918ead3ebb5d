"""Runs a sweep in the simulator: the same plan, resume and run directories as on hosts, without hosts.

Simulator processes (simulator_process.py) take the runs. A process that dies fails its run and is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.formats.device import GPU
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import RUNNING, SIMULATED, ClockFit, ClockProbe, HostRecord, Manifest, TaskRecord
from driple.contracts.protocol.simulation_messages import Check, Failed, Simulate, Simulated
from driple.contracts.run_dir import RunPaths, replacing
from driple.contracts.run_spec import JobSpec, TaskSpec
from driple.orchestrator.attempt.fetch import Stage, previous_attempts, remove_partials, seal
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.sweep.provenance import Provenance
from driple.orchestrator.sweep.scheduler import RunResult, SweepOptions, Watcher
from driple.orchestrator.sweep.simulator_process import SimulatorProcess

FIRST_PORT = 20000


def check_runs(runs: Sequence[PlannedRun]) -> None:
    """Raises BadInput if a setting of these runs cannot be simulated, before anything is started."""
    asked = dict.fromkeys((str(run.spec.setting), run.spec.workload.path) for run in runs)
    if not asked:
        return
    process = SimulatorProcess()
    try:
        for setting, topology in asked:
            answer = process.ask(Check(setting=setting, topology=topology))
            if isinstance(answer, Failed):
                raise (BadInput if answer.bad_input else RunFailed)(answer.message)
    finally:
        process.end()


class SimulatedSweep:
    """Simulates the given part of a plan."""

    def __init__(
        self,
        experiment: Experiment,
        runs: Sequence[PlannedRun],
        options: SweepOptions,
        watcher: Watcher,
        provenance: Provenance,
    ) -> None:
        """Prepares; `go` runs."""
        self._experiment = experiment
        self._options = options
        self._watcher = watcher
        self._provenance = provenance
        self._todo: queue.SimpleQueue[PlannedRun] = queue.SimpleQueue()
        for run in runs:
            self._todo.put(run)
        self._results: list[RunResult] = []
        self._runs = runs
        self._lock = threading.Lock()
        self._processes: list[SimulatorProcess] = []
        self._stop = threading.Event()
        self._refused: str | None = None

    def go(self) -> list[RunResult]:
        """Simulates until all runs are done, or the sweep is stopped. Raises BadInput for a run that never can be."""
        remove_partials(self._options.output, self._experiment.name)
        count = min(self._options.parallel or len(os.sched_getaffinity(0)), len(self._runs))
        threads = [threading.Thread(target=self._work, name=f"simulator-{i}") for i in range(count)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                self._watcher.tick()
                if self._stopped():
                    self._kill()
        finally:
            self._stop.set()
            self._kill()
            for thread in threads:
                thread.join()
        if self._refused is not None:  # no other try helps, and the other runs of the sweep are usually alike
            raise BadInput(self._refused)
        done = {result.run.id for result in self._results}
        return self._results + [RunResult(run, "not done") for run in self._runs if run.id not in done]

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._options.stop.is_set()

    def _kill(self) -> None:
        """Ends the simulations under way; their runs leave nothing."""
        with self._lock:
            for process in self._processes:
                process.kill()

    def _started(self) -> SimulatorProcess:
        process = SimulatorProcess()
        with self._lock:
            self._processes.append(process)
            if self._stopped():  # `_kill` may have come too early for it
                process.kill()
        return process

    def _work(self) -> None:
        process: SimulatorProcess | None = None
        try:
            while not self._stopped():
                try:
                    run = self._todo.get_nowait()
                except queue.Empty:
                    return
                if process is None or not process.alive:
                    process = self._started()
                result = self._simulate(run, process)
                if result is None:
                    return
                with self._lock:
                    self._results.append(result)
                self._watcher.ended(result)
                if result.failure is not None and self._options.fail_fast:
                    self._stop.set()
        finally:
            if process is not None:
                process.end()

    def _simulate(self, run: PlannedRun, process: SimulatorProcess) -> RunResult | None:
        """None if the sweep was stopped: the run leaves nothing."""
        began = time.monotonic()
        output, name = self._options.output, self._experiment.name
        number = previous_attempts(RunPaths(output, name, run.id)) + 1
        hosts = tuple(dict.fromkeys(task.host for task in run.tasks))
        self._watcher.started(run, [f"simulated {host}" for host in hosts], number)
        stage = Stage.make(output, name, run.id, number)
        try:
            manifest = self._manifest(run, number)
            job = _job(run)
            with replacing(stage.paths.job) as stream:
                json.dump(to_plain(job), stream, indent=1)
            request = Simulate(job=str(stage.paths.job), folder=str(stage.paths.root))
            answer = process.ask(request, lambda share: self._watcher.progress(run, f"{100 * share:.0f} % simulated"))
            if self._stopped():
                stage.discard()
                return None
            if isinstance(answer, Failed) and answer.bad_input:
                self._refused = self._refused or answer.message
                self._stop.set()
                stage.discard()
                return None
            if not isinstance(answer, Simulated):
                raise RunFailed(
                    answer.message if isinstance(answer, Failed) else "the simulator ended without an answer"
                )
            seal(stage, _completed(manifest, run, answer), _checksums(stage.paths.root))
            seconds = time.monotonic() - began
            return RunResult(run, "sealed", number, seconds, answer.steps, None, hosts, stage.final.root)
        except RunFailed as error:
            stage.discard()
            if self._stopped():
                return None
            return RunResult(run, "failed", number, time.monotonic() - began, 0, error, hosts, None)
        except BaseException:
            stage.discard()
            raise

    def _manifest(self, run: PlannedRun, number: int) -> Manifest:
        return Manifest(
            run=run.spec,
            run_id=run.id,
            status=RUNNING,
            attempt=number,
            started_real_s=time.time(),
            versions=self._provenance.versions,
            git_commit=self._provenance.git_commit,
        )


def _completed(manifest: Manifest, run: PlannedRun, answer: Simulated) -> Manifest:
    hosts = dict.fromkeys(task.host for task in run.tasks)
    exact = ClockProbe(host_ns=0, offset_ns=0, bound_ns=0)
    record = HostRecord(SIMULATED, "simulated", "simulated", "", 1, 0, platform.python_version())
    on_gpus = [task.host for task in run.tasks if task.gpu is not None and answer.device_kind == GPU]
    device = run.spec.setting.device
    return replace(
        manifest,
        tasks=tuple(
            TaskRecord(
                task=task.task,
                host=task.host,
                exit_code=0,
                steps=answer.steps if task.task.startswith("worker") else 0,
                started_by=SIMULATED,
                traffic_source=answer.traffic_sources[task.task],
            )
            for task in run.tasks
        ),
        hosts={
            host: replace(record, hostname=host, cores=os.cpu_count() or 1, gpus=(device,) * on_gpus.count(host))
            for host in hosts
        },
        clocks={host: ClockFit(exact, exact) for host in hosts},
        ended_real_s=time.time(),
        versions={**manifest.versions, **answer.versions},
        measured_network={"rate_mbit": answer.rate_mbit} if answer.rate_mbit else {},
    )


def _job(run: PlannedRun) -> JobSpec:
    tasks = (
        TaskSpec(task=task.task, host=task.host, address=f"{task.host}:{FIRST_PORT + number}", gpu=task.gpu)
        for number, task in enumerate(run.tasks)
    )
    return JobSpec(run=run.spec, tasks=tuple(tasks))


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
