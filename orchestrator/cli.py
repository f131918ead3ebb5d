"""driple-run: an experiment file to runs on hosts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import NotInThisVersion


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses, plans, prints."""
    parser = CommandParser(
        prog="driple-run",
        description="Run a sweep of training jobs on hosts and record what each does to them.\n\n"
        "Not in this version: running. It reads, checks and plans experiments (--dry-run).",
        example="driple-run experiments/p2w2.yaml --dry-run",
    )
    parser.add_argument(
        "experiment", type=Path, nargs="?", metavar="FILE", help="experiment file (docs/EXPERIMENTS.md)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and what of it is done; start nothing")
    parser.add_argument(
        "--output", type=Path, default=Path("traces"), metavar="DIR", help="folder of runs (default: traces)"
    )
    parser.add_argument("--list-models", action="store_true", help="print the models an experiment can name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args(argv)
    if (arguments.experiment is None) != arguments.list_models:
        parser.error("expected an experiment FILE, or --list-models, and not both")
    # Only now: --help must not wait for what the work needs.
    from driple.orchestrator import show

    if arguments.list_models:
        print(json.dumps(show.zoo_json()) if arguments.json else show.zoo_text())
        return 0

    from driple.orchestrator.done import sealed_runs
    from driple.orchestrator.experiment import load_experiment
    from driple.orchestrator.plan import plan

    experiment = load_experiment(arguments.experiment)
    runs = plan(experiment)
    done = sealed_runs(arguments.output, experiment.name, [run.id for run in runs])
    if not arguments.dry_run:
        raise NotInThisVersion(
            f"driple-run: error: {arguments.experiment} is a sound plan of {len(runs)} runs, and this version cannot "
            "run it yet; --dry-run shows the plan"
        )
    if arguments.json:
        print(json.dumps(show.plan_json(experiment, runs, done)))  # no indent: it costs seconds at 10 000 runs
    else:
        print(show.plan_text(experiment, runs, done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
