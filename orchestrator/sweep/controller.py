"""A sweep from plan to summary: hosts, agent, signals, board and notifications put together for driple-run."""

from __future__ import annotations

import getpass
import logging
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from driple.contracts.errors import BadInput
from driple.orchestrator.attempt import fetch
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.hosts.agent_file import build_agent
from driple.orchestrator.hosts.host_pool import Fleet
from driple.orchestrator.hosts.registry import Cluster, backend
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.planning.resume import sealed_runs
from driple.orchestrator.sweep.console import Board, BoardHandler
from driple.orchestrator.sweep.notify import FAILED, Notify
from driple.orchestrator.sweep.provenance import provenance
from driple.orchestrator.sweep.scheduler import Options, Result, Sweep, only_sweep

log = logging.getLogger(__name__)


def run_sweep(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    done: frozenset[str],
    options: Options,
    *,
    notify: Notify,
    accept_new_host_keys: bool = False,
) -> list[Result]:
    """Does every run that is not done; a result for each of those."""
    links = {(setting.network, network) for setting in experiment.settings for network in experiment.networks}
    hosts = backend(experiment.inventory.kind)
    if hosts.one_condition and (options.parallel or 1) > 1 and len(links) > 1:
        raise BadInput("--parallel: a lab has one network condition at a time, and this experiment has several")
    board = _NotifyingBoard(notify, experiment.name)
    handler = BoardHandler(board)
    logging.getLogger().addHandler(handler)
    try:
        with only_sweep(options.output, experiment.name):
            to_do = [run for run in runs if run.id not in done]
            if not to_do:
                board.begin(len(runs), len(runs))
                return []
            with hosts.cluster(experiment, accept_new_host_keys=accept_new_host_keys) as cluster:
                if cluster.fallback_reason is None:
                    return _do(experiment, runs, to_do, cluster, options, board)
                # They measure something else than the lab's would, which must not be taken for done by them.
                other = replace(experiment, name=f"{experiment.name}-without-lab")
                with only_sweep(options.output, other.name):
                    there = sealed_runs(options.output, other.name, [run.id for run in to_do], any_network=True)
                    rest = [run for run in to_do if run.id not in there]
                    return _do(other, runs, rest, cluster, options, board)
    finally:
        board.close()
        logging.getLogger().removeHandler(handler)


def _do(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    to_do: Sequence[PlannedRun],
    cluster: Cluster,
    options: Options,
    board: Board,
) -> list[Result]:
    fetch.remove_partials(options.output, experiment.name)
    board.begin(len(runs), len(runs) - len(to_do))
    agent = build_agent()
    owner = f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()} {experiment.name}"
    fleet = Fleet(cluster.specs, cluster.connect, agent, owner)
    sweep = Sweep(experiment, to_do, cluster, fleet, options, board, provenance(agent.sha256))
    try:
        with _signals(sweep):
            return sweep.go()
    except KeyboardInterrupt:
        fleet.close(at_once=True)
        raise
    finally:
        board.close()
        fleet.close()


class _NotifyingBoard(Board):
    """A board that also tells of failures."""

    def __init__(self, notify: Notify, experiment: str) -> None:
        super().__init__()
        self._notify = notify
        self._experiment = experiment

    def ended(self, result: Result) -> None:
        super().ended(result)
        if result.status == "failed":
            value = {"experiment": self._experiment, "run": result.run.id, "failure": str(result.failure)}
            self._notify.tell(FAILED, value)


@contextmanager
def _signals(sweep: Sweep) -> Iterator[None]:
    """Once: stop the current runs cleanly. Twice: at once; the stewards end what runs when they hear no more."""
    asked = 0

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt
        log.warning("%s: stopping the current runs; once more ends at once", signal.Signals(number).name)
        sweep.stop()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # One that is ignored stays so: nohup.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    old = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
