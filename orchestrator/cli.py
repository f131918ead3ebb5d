"""driple-run: runs an experiment on hosts."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command
from driple.contracts.command_guard import tell
from driple.contracts.errors import BadInput

if TYPE_CHECKING:
    from driple.orchestrator.sweep.notify import Notify

log = logging.getLogger(__name__)


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; 0 everything is done, 1 a run failed, 2 bad input, 130 stopped by the user."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if (arguments.experiment is not None) + arguments.list_models + arguments.list != 1:
        parser.error("expected one of EXPERIMENT, --list and --list-models")
    # Imported only now, so that --help is fast.
    from driple.orchestrator.planning import plan_text

    if arguments.list_models:
        print(json.dumps(plan_text.zoo_json()) if arguments.json else plan_text.zoo_text())
        return 0
    if arguments.list:
        from driple.orchestrator.config.experiment_lookup import known_experiments

        known = {name: str(path) for name, path in known_experiments().items()}
        print(json.dumps(known) if arguments.json else plan_text.table(("experiment", "file"), known.items()))
        return 0
    if arguments.parallel is not None and arguments.parallel < 1:
        raise BadInput(f"--parallel: expected 1 or more, got {arguments.parallel}")
    patience_s = _seconds("--wait-for-hosts", arguments.wait_for_hosts)
    from driple.orchestrator.sweep.notify import Notify

    notify = Notify(on_finish=arguments.on_finish, on_failure=arguments.on_failure, webhook=arguments.webhook)
    if not arguments.dry_run:
        return _run(arguments, notify, patience_s)

    from driple.orchestrator.sweep.run_experiment import plan_sweep

    planned = plan_sweep(
        arguments.experiment,
        output=arguments.output,
        done_in=arguments.done,
        accept_loopback=arguments.accept_loopback,
        simulate=arguments.simulate,
    )
    parts = (planned.experiment, planned.runs, planned.done, planned.simulated)
    # No indent: it costs seconds at 10 000 runs.
    print(json.dumps(plan_text.plan_json(*parts)) if arguments.json else plan_text.plan_text(*parts))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-run",
        description="Run a sweep of training jobs on hosts and record how each uses them. Finished runs are skipped:\n"
        "after a crash, a failure or Ctrl-C, the same command continues.",
        example="driple-run p2w2",
    )
    parser.add_argument(
        "experiment", nargs="?", metavar="EXPERIMENT", help="an experiment file, or a name that --list prints"
    )
    parser.add_argument("--list", action="store_true", help="print the experiments that have a name")
    parser.add_argument("--list-models", action="store_true", help="print the models that an experiment can name")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and which runs are done; start nothing")
    parser.add_argument(
        "--output", type=Path, default=Path("traces"), metavar="DIR", help="folder of runs (default: %(default)s)"
    )
    parser.add_argument(
        "--done",
        type=Path,
        action="append",
        default=[],
        metavar="DATASETS",
        help="also skip runs with rows in a dataset of this folder, except rows flagged foreign_load",
    )
    parser.add_argument(
        "--accept-loopback",
        action="store_true",
        help="also skip runs that were done over loopback because the lab could not be created",
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulate the runs instead of using hosts; needs no GPU and no cluster"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    how = parser.add_argument_group("execution")
    end = how.add_mutually_exclusive_group()
    end.add_argument("--keep-going", action="store_true", help="continue after a failed run (the default)")
    end.add_argument("--fail-fast", action="store_true", help="stop at the first run that fails")
    how.add_argument("--parallel", type=int, metavar="N", help="at most N runs at a time, on disjoint hosts")
    how.add_argument("--cold", action="store_true", help="load TensorFlow anew for every task, instead of forking")
    how.add_argument(
        "--accept-new-host-keys",
        action="store_true",
        help="add the key of an unknown host to known_hosts; a changed key is still refused",
    )
    how.add_argument(
        "--wait-for-hosts",
        default="10min",
        metavar="TIME",
        help="how long runs wait for hosts that do not answer (default: %(default)s)",
    )
    how.add_argument("--verbose", action="store_true", help="print more about the work on hosts")
    notify = parser.add_argument_group("notifications")
    notify.add_argument("--on-finish", metavar="COMMAND", help="run at the end, with the summary as JSON on stdin")
    notify.add_argument("--on-failure", metavar="COMMAND", help="run for each failed run, with JSON on stdin")
    notify.add_argument("--webhook", metavar="URL", help="post both as JSON")
    return parser


def _run(arguments: argparse.Namespace, notify: Notify, patience_s: float) -> int:
    from driple.orchestrator.sweep.console import Console, ConsoleHandler, summary_json, summary_text
    from driple.orchestrator.sweep.notify import FAILED, FINISHED
    from driple.orchestrator.sweep.run_experiment import run
    from driple.orchestrator.sweep.scheduler import RunResult

    def failed(result: RunResult) -> None:
        name = str(result.directory.parent.name) if result.directory else ""
        notify.tell(FAILED, {"experiment": name, "run": result.run.id, "failure": str(result.failure)})

    console = Console(on_failed=failed)
    handler = ConsoleHandler(console)
    root = logging.getLogger()
    root.setLevel(logging.INFO if arguments.verbose else logging.WARNING)
    root.addHandler(handler)
    stop = threading.Event()
    try:
        with _signals(stop):
            result = run(
                arguments.experiment,
                output=arguments.output,
                done_in=arguments.done,
                accept_loopback=arguments.accept_loopback,
                parallel=arguments.parallel,
                fail_fast=arguments.fail_fast,
                cold=arguments.cold,
                host_patience_s=patience_s,
                accept_new_host_keys=arguments.accept_new_host_keys,
                simulate=arguments.simulate,
                watcher=console,
                stop=stop,
            )
    finally:
        console.close()
        root.removeHandler(handler)
    results = [each for each in result.runs if each not in result.skipped]
    summary = summary_json(result.experiment, str(result.output), len(result.skipped), results, result.simulated)
    if arguments.json:
        tell(json.dumps(summary))
    elif results:
        tell(summary_text(results, result.simulated))
    notify.tell(FINISHED, summary, wait=True)
    return 1 if result.failed else 130 if result.not_done else 0


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first signal stops the current runs cleanly. The second ends at once; the agents then end what runs."""

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        log.warning("%s: stopping the current runs; once more ends at once", signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A signal that is ignored stays ignored: nohup.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    old = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)


def _seconds(option: str, text: str) -> float:
    from driple.contracts.quantity import ExpectedError
    from driple.orchestrator.config.validation import duration_s

    try:
        return duration_s(text)
    except ExpectedError as error:
        raise BadInput(f"{option}: expected {error}, got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
