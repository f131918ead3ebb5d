"""driple-run: an experiment file to runs on hosts."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command
from driple.contracts.command_guard import tell
from driple.contracts.errors import BadInput

if TYPE_CHECKING:
    from driple.orchestrator.config.experiment import Experiment
    from driple.orchestrator.planning.plan import PlannedRun


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, calls, prints; 0 all is done, 1 a run failed, 2 bad input, 130 stopped by the user."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if (arguments.experiment is None) != arguments.list_models:
        parser.error("expected an experiment FILE, or --list-models, and not both")
    # Only now: --help must not wait for what the work needs.
    from driple.orchestrator.planning import plan_text

    if arguments.list_models:
        print(json.dumps(plan_text.zoo_json()) if arguments.json else plan_text.zoo_text())
        return 0

    from driple.orchestrator.config.experiment import load_experiment
    from driple.orchestrator.planning.plan import plan
    from driple.orchestrator.planning.resume import measured_runs, sealed_runs

    experiment = load_experiment(arguments.experiment)
    runs = plan(experiment)
    names = [run.id for run in runs]
    done = sealed_runs(arguments.output, experiment.name, names)
    for datasets in arguments.done:
        done |= measured_runs(datasets, map(str, experiment.settings), names)
    if not arguments.dry_run:
        return _run(arguments, experiment, runs, done)
    if arguments.json:
        print(json.dumps(plan_text.plan_json(experiment, runs, done)))  # no indent: it costs seconds at 10 000 runs
    else:
        print(plan_text.plan_text(experiment, runs, done))
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-run",
        description="Run a sweep of training jobs on hosts and record what each does to them. Runs that are done are\n"
        "not done again: after a crash, a failure or Ctrl-C, the same command goes on where it was.",
        example="driple-run experiments/p2w2.yaml",
    )
    parser.add_argument("experiment", type=Path, nargs="?", metavar="FILE", help="experiment file (docs/reference)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and what of it is done; start nothing")
    parser.add_argument(
        "--output", type=Path, default=Path("traces"), metavar="DIR", help="folder of runs (default: traces)"
    )
    parser.add_argument(
        "--done",
        type=Path,
        action="append",
        default=[],
        metavar="DATASETS",
        help="runs with rows in a dataset of this folder are done too, except rows flagged foreign_load",
    )
    parser.add_argument("--list-models", action="store_true", help="print the models an experiment can name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    how = parser.add_argument_group("how it runs")
    end = how.add_mutually_exclusive_group()
    end.add_argument("--keep-going", action="store_true", help="a failed run does not end the sweep (the default)")
    end.add_argument("--fail-fast", action="store_true", help="the first run that fails ends the sweep")
    how.add_argument("--parallel", type=int, metavar="N", help="at most N runs at a time, on disjoint hosts")
    how.add_argument("--cold", action="store_true", help="every task loads TensorFlow anew, instead of forking")
    how.add_argument(
        "--accept-new-host-keys",
        action="store_true",
        help="add the key of a host met for the first time to known_hosts; a changed key is still refused",
    )
    how.add_argument(
        "--wait-for-hosts",
        default="10min",
        metavar="TIME",
        help="how long runs wait for hosts that do not answer (default: 10min)",
    )
    how.add_argument("--verbose", action="store_true", help="say more about what is done on hosts")
    tell = parser.add_argument_group("whom to tell")
    tell.add_argument("--on-finish", metavar="COMMAND", help="run it at the end, with the summary as JSON on stdin")
    tell.add_argument("--on-failure", metavar="COMMAND", help="run it for each run that fails for good, likewise")
    tell.add_argument("--webhook", metavar="URL", help="post both as JSON")
    return parser


def _run(
    arguments: argparse.Namespace, experiment: Experiment, runs: Sequence[PlannedRun], done: frozenset[str]
) -> int:
    from driple.orchestrator.sweep import console
    from driple.orchestrator.sweep.controller import run_sweep
    from driple.orchestrator.sweep.notify import FINISHED, Notify
    from driple.orchestrator.sweep.scheduler import Options

    if arguments.parallel is not None and arguments.parallel < 1:
        raise BadInput(f"--parallel: expected 1 or more, got {arguments.parallel}")
    logging.getLogger().setLevel(logging.INFO if arguments.verbose else logging.WARNING)
    notify = Notify(on_finish=arguments.on_finish, on_failure=arguments.on_failure, webhook=arguments.webhook)
    options = Options(
        output=arguments.output,
        fail_fast=arguments.fail_fast,
        cold=arguments.cold,
        parallel=arguments.parallel,
        host_patience_s=_seconds("--wait-for-hosts", arguments.wait_for_hosts),
    )
    results = run_sweep(
        experiment, runs, done, options, notify=notify, accept_new_host_keys=arguments.accept_new_host_keys
    )
    summary = console.summary_json(experiment.name, str(arguments.output), len(done), results)
    if arguments.json:
        tell(json.dumps(summary))
    elif results:
        tell(console.summary_text(results))
    notify.tell(FINISHED, summary, wait=True)
    if summary["counts"]["failed"]:
        return 1
    return 130 if summary["counts"]["not done"] else 0


def _seconds(option: str, text: str) -> float:
    from driple.orchestrator.config.validation import Expected, duration_s

    try:
        return duration_s(text)
    except Expected as error:
        raise BadInput(f"{option}: expected {error}, got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
