"""Runs an experiment: the function behind `driple-run`.

It installs no signal handlers, does not touch the root logger and prints nothing.
"""

from __future__ import annotations

import getpass
import io
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.manifest import SIMULATED
from driple.contracts.run_dir import RunPaths
from driple.contracts.strategy import STRATEGIES
from driple.orchestrator.attempt import fetch
from driple.orchestrator.config.experiment import Experiment, load_experiment
from driple.orchestrator.config.experiment_lookup import find_experiment
from driple.orchestrator.hosts.agent_file import build_agent
from driple.orchestrator.hosts.host_pool import HostPool
from driple.orchestrator.hosts.registry import Cluster, backend
from driple.orchestrator.planning.plan import PlannedRun, plan
from driple.orchestrator.planning.resume import measured_runs, sealed_runs
from driple.orchestrator.sweep.console import Console
from driple.orchestrator.sweep.provenance import provenance
from driple.orchestrator.sweep.scheduler import HOST_PATIENCE_S, RunResult, Sweep, SweepOptions, Watcher, only_sweep
from driple.orchestrator.sweep.simulated_sweep import SimulatedSweep, check_runs

# Otherwise logging prints warnings on stderr in a program that sets up no logging.
logging.getLogger("driple").addHandler(logging.NullHandler())

SIMULATED_FOLDER = "-simulated"  # suffix of the folder of simulated runs of an experiment on real hosts
WITHOUT_LAB = "-without-lab"  # suffix of the folder of runs that used loopback because the lab could not be created


@dataclass(frozen=True)
class SweepPlan:
    """The runs of an experiment, and which of them are done."""

    experiment: Experiment
    runs: tuple[PlannedRun, ...]
    done: frozenset[str]
    simulated: bool
    """Whether the runs are simulated, and not measured on hosts."""


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep."""

    experiment: str
    output: Path
    runs: tuple[RunResult, ...]  # one for each run of the plan, in its order
    simulated: bool = False

    @property
    def sealed(self) -> tuple[RunResult, ...]:
        """Runs that were measured now."""
        return self._of("sealed")

    @property
    def failed(self) -> tuple[RunResult, ...]:
        """Runs that failed after all retries; each has its failure."""
        return self._of("failed")

    @property
    def skipped(self) -> tuple[RunResult, ...]:
        """Runs that had been done before."""
        return self._of("skipped")

    @property
    def not_done(self) -> tuple[RunResult, ...]:
        """Runs that were not started or not finished because the sweep was stopped."""
        return self._of("not done")

    def _of(self, status: str) -> tuple[RunResult, ...]:
        return tuple(result for result in self.runs if result.status == status)


def plan_sweep(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    output: str | os.PathLike[str] = "traces",
    resume: bool = True,
    done_in: Sequence[str | os.PathLike[str]] = (),
    accept_loopback: bool = False,
    simulate: bool = False,
) -> SweepPlan:
    """Plans an experiment without starting anything. Arguments as of `run`."""
    source = experiment if isinstance(experiment, Mapping) else find_experiment(experiment)
    loaded = load_experiment(source, SIMULATED) if simulate else load_experiment(source)
    simulated = simulate or loaded.inventory.kind == SIMULATED
    if simulate and not loaded.name.endswith(SIMULATED_FOLDER):
        loaded = replace(loaded, name=loaded.name + SIMULATED_FOLDER)
    if simulated:
        _check_simulated(loaded)
    runs = plan(loaded)
    names = [run.id for run in runs]
    done = sealed_runs(Path(output), loaded.name, names) if resume else frozenset()
    if accept_loopback and resume:
        done |= sealed_runs(Path(output), loaded.name + WITHOUT_LAB, names, any_network=True)
    for datasets in done_in:
        done |= measured_runs(Path(datasets), map(str, loaded.settings), names, simulated=simulated)
    if simulated:
        check_runs([run for run in runs if run.id not in done])
    return SweepPlan(loaded, runs, done, simulated)


def _check_simulated(experiment: Experiment) -> None:
    """Refuses what no simulation has, before the first run. Raises BadInput."""
    if experiment.cores_per_host is not None:
        raise BadInput(
            f"{experiment.source}: cores_per_host: a simulation computes with the machine of its host file, without a "
            "share; leave it out, or measure"
        )
    for network in experiment.networks:
        parts = [part for part in network.parts if part != "rate"]
        if parts:
            raise BadInput(
                f"{experiment.source}: network: {parts[0]}: a simulation has no packet loss, no delay and no congestion"
                " control; leave them out, or measure"
            )
    for workload in experiment.workloads:
        if not STRATEGIES[workload.strategy].has_simulation:
            raise BadInput(
                f"{experiment.source}: {workload.label}: strategy {workload.strategy} cannot be simulated; measure it"
            )


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    output: str | os.PathLike[str] = "traces",
    resume: bool = True,
    done_in: Sequence[str | os.PathLike[str]] = (),
    accept_loopback: bool = False,
    parallel: int | None = None,
    fail_fast: bool = False,
    cold: bool = False,
    host_patience_s: float = HOST_PATIENCE_S,
    accept_new_host_keys: bool = False,
    simulate: bool = False,
    progress: Callable[[str], None] | None = None,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> SweepResult:
    """Runs every run of an experiment that is not done yet.

    Args:
        experiment: an experiment file, the name of an experiment that comes with driple, or the content of such a file
            as a mapping, which needs the key `name`.
        output: the folder of runs.
        resume: skip runs that are sealed under `output`.
        done_in: folders of datasets; runs with rows there are skipped too.
        accept_loopback: also skip runs that were done over loopback because the lab could not be created.
        parallel: at most so many runs at a time, on disjoint hosts.
        fail_fast: stop at the first run that fails.
        cold: start a new Python for every task, instead of forking tasks from a process with TensorFlow loaded.
        host_patience_s: how long runs wait for hosts that do not answer.
        accept_new_host_keys: add the key of an unknown host to known_hosts.
        simulate: simulate the runs instead of using the hosts; the folder of runs gets the suffix `-simulated`.
        progress: called with each line of progress.
        watcher: receives structured progress instead of `progress`.
        stop: when set, the current runs are stopped cleanly and no other is started.

    Raises:
        BadInput: the experiment or an argument is wrong; nothing was started.
    """
    planned = plan_sweep(
        experiment,
        output=output,
        resume=resume,
        done_in=done_in,
        accept_loopback=accept_loopback,
        simulate=simulate,
    )
    loaded, folder = planned.experiment, Path(output)
    hosts = backend(loaded.inventory.kind)
    links = {(setting.network, network) for setting in loaded.settings for network in loaded.networks}
    if parallel is not None and parallel < 1:
        raise BadInput(f"parallel: expected 1 or more, got {parallel}")
    if hosts.one_condition and (parallel or 1) > 1 and len(links) > 1:
        raise BadInput("parallel: a lab has one network condition at a time, and this experiment has several")
    options = SweepOptions(
        output=folder,
        fail_fast=fail_fast,
        cold=cold,
        parallel=parallel,
        host_patience_s=host_patience_s,
        stop=stop or threading.Event(),
    )
    watcher = watcher or Console(_Lines(progress or (lambda text: None)))
    results: list[RunResult] = []
    with only_sweep(folder, loaded.name):
        to_do = [run for run in planned.runs if run.id not in planned.done]
        if not to_do:
            watcher.begin(len(planned.runs), len(planned.runs))
        elif planned.simulated:
            watcher.begin(len(planned.runs), len(planned.runs) - len(to_do))
            results = SimulatedSweep(loaded, to_do, options, watcher, provenance()).go()
        else:
            with hosts.cluster(loaded, accept_new_host_keys=accept_new_host_keys) as cluster, ExitStack() as locks:
                if cluster.fallback_reason is not None:  # its own folder: a later sweep on a lab must not use it
                    loaded = replace(loaded, name=loaded.name + WITHOUT_LAB)
                    locks.enter_context(only_sweep(folder, loaded.name))
                    there = sealed_runs(folder, loaded.name, [run.id for run in to_do], any_network=True)
                    to_do = [run for run in to_do if run.id not in there]
                results = _do(loaded, planned.runs, to_do, cluster, options, watcher)
    by_id = {result.run.id: result for result in results}
    every = (
        by_id.get(each.id) or RunResult(each, "skipped", directory=RunPaths(folder, loaded.name, each.id).root)
        for each in planned.runs
    )
    return SweepResult(planned.experiment.name, folder, tuple(every), planned.simulated)


def _do(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    to_do: Sequence[PlannedRun],
    cluster: Cluster,
    options: SweepOptions,
    watcher: Watcher,
) -> list[RunResult]:
    fetch.remove_partials(options.output, experiment.name)
    watcher.begin(len(runs), len(runs) - len(to_do))
    agent = build_agent()
    owner = f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()} {experiment.name}"
    pool = HostPool(cluster.specs, cluster.connect, agent, owner)
    try:
        return Sweep(experiment, to_do, cluster, pool, options, watcher, provenance(agent.sha256)).go()
    except KeyboardInterrupt:
        pool.close(at_once=True)
        raise
    finally:
        pool.close()


class _Lines(io.TextIOBase):
    """A stream that passes each line to a function."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def write(self, text: str) -> int:
        self._take(text.rstrip("\n"))
        return len(text)
