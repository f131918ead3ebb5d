"""Runs on the lab by the real sweep, with a stopwatch at the doors of its parts: what a run takes beyond its job."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from driple.contracts.errors import RunFailed
from driple.orchestrator.attempt import attempt as lifecycle
from driple.orchestrator.attempt import fetch
from driple.orchestrator.attempt.attempt import Attempt
from driple.orchestrator.attempt.data_network import Links
from driple.orchestrator.attempt.task_start import Starter
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.hosts.agent_client import AgentClient
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.host_pool import HostPool
from driple.orchestrator.hosts.lab_backend import lab_cluster
from driple.orchestrator.lab.lab_client import Lab
from driple.orchestrator.planning.plan import PlannedRun, plan
from driple.orchestrator.sweep.provenance import provenance
from driple.orchestrator.sweep.scheduler import RunResult, Sweep, SweepOptions, only_sweep

SETTING = "cpu-p2w2-1g"
HOSTS = 4
WORKLOAD = "lenet at batch 4, width 0.125"
EXPERIMENT = f"""\
name: overhead
setting: {SETTING}
hosts: lab
workloads:
  - {{{{model: lenet, batch_size: 4, image_size: 32, width: 0.125}}}}
steps: 60
warmup_steps: 5
threads: 1
retries: 0
repetitions: {{runs}}
"""
STARTED, END = "started", "servers and samplers end, after the last worker's last message"
DOORS: tuple[tuple[Any, str, str], ...] = (
    (HostPool, "clients", "connect, bring the agent, start agents"),
    (Links, "apply", "network condition and its probe"),
    (lifecycle, "prepare", "check hosts, ports, job files"),
    (Attempt, "_warm_up", "load TensorFlow"),
    (AgentClient, "probe_clock", "clock probes, before and after"),
    (Starter, "started", STARTED),
    (Attempt, "_finish", END),
    (fetch, "fetch", "fetch and verify files"),
    (fetch, "seal", "seal"),
    (Attempt, "remove_folders", "remove files on the hosts"),
)
"""Owner, function, and what its time is called."""
PARTS = tuple(label for _, _, label in DOORS if label != STARTED)


class Stopwatch:
    """A watcher of a sweep of one run at a time; its record of each run."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self._spans: dict[str, list[tuple[float, float]]] = {}
        self._ended: lifecycle.FinishedAttempt | None = None
        self._began = self._began_cpu = 0.0

    @contextmanager
    def at_the_doors(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, label in DOORS:
                stack.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), label)))
            stack.enter_context(patch.object(Attempt, "go", self._kept(Attempt.go)))
            yield

    def _timed(self, function: Callable[..., Any], label: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **more: Any) -> Any:
            began = time.monotonic()
            try:
                return function(*arguments, **more)
            finally:
                self._spans.setdefault(label, []).append((began, time.monotonic()))

        return timed

    def _kept(
        self, go: Callable[[Attempt], lifecycle.FinishedAttempt]
    ) -> Callable[[Attempt], lifecycle.FinishedAttempt]:
        def kept(attempt: Attempt) -> lifecycle.FinishedAttempt:
            self._ended = go(attempt)
            return self._ended

        return kept

    # what a sweep calls

    def begin(self, total: int, done: int) -> None: ...

    def progress(self, run: PlannedRun, text: str) -> None: ...

    def tick(self) -> None: ...

    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None:
        raise error

    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None:
        self._spans.clear()
        self._began, self._began_cpu = time.monotonic(), time.process_time()

    def ended(self, result: RunResult) -> None:
        wall, cpu = time.monotonic() - self._began, time.process_time() - self._began_cpu
        assert result.status == "sealed" and self._ended is not None
        # Of the job, what is surely its own: from the first task that is known to run, to the last word that the last
        # worker writes. The lab's hosts have this machine's clock. All else is overhead, also the end of processes.
        job_began = self._spans.pop(STARTED)[0][0]
        ((workers_ended, all_ended),) = self._spans.pop(END)
        last_words = [state.finished for state in self._ended.tasks if state.is_worker]
        # A worker's end may be heard of before its last word, which is then never asked for.
        job_ended = max(workers_ended if word is None else word.mono_ns / 1e9 for word in last_words)
        parts = {label: sum(end - begin for begin, end in spans) for label, spans in self._spans.items()}
        parts[END] = all_ended - job_ended
        job = job_ended - job_began
        self.runs.append({"wall_s": wall, "cpu_s": cpu, "job_s": job, "overhead_s": wall - job, "parts": parts})


def sweep(lab: Lab, agent: AgentFile, runs: int) -> list[dict[str, Any]]:
    """A sweep of so many runs on hosts where nothing of ours is; a record of each."""
    watch = Stopwatch()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "overhead.yaml"
        file.write_text(EXPERIMENT.format(runs=runs))
        experiment = load_experiment(file)
        cluster = lab_cluster(lab, experiment)
        fleet = HostPool(cluster.specs, cluster.connect, agent, "benchmark")
        stack.callback(fleet.close)
        stack.enter_context(only_sweep(folder, experiment.name))
        stack.enter_context(watch.at_the_doors())
        options = SweepOptions(output=folder)
        known = provenance(agent.sha256)
        results = Sweep(experiment, plan(experiment), cluster, fleet, options, watch, known).go()
        assert len(results) == len(watch.runs) == runs
    return watch.runs
