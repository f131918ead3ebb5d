"""How long people wait for commands: help pages, and plans of 10 000 runs.

    python benchmarks/commands.py [--rounds 9] [--json] [--write docs/benchmarks/commands.md]

Every contestant runs once a round, in turn, and the medians and the spread (5th to 95th percentile) of all rounds are
shown, with the ratio to the baseline `python -c pass`. Run it on a quiet machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from pages import machine, parser_of, publish

from driple.contracts.manifest import SEALED, Manifest
from driple.contracts.run_dir import RunPaths
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.planning.plan import plan

COMMANDS = ("run", "lab", "sample", "metrics", "build-dataset", "train", "predict", "report")
BASELINE = "python -c pass"
SWEEP = """\
setting: cpu-p2w2-1g
workloads:
  - model: [resnet20, resnet32, resnet44, resnet56, resnet110]
    batch_size: [{batches}]
    width: [1, 0.5, 0.25, 0.75]
    update: [sync, async]
steps: 40
repetitions: 5
"""
RUNS = 10_000


def sweep(folder: Path) -> tuple[Path, Path, Path]:
    """An experiment of 10 000 runs, an empty output folder, and one in which all but ten runs are sealed."""
    path = folder / "sweep.yaml"
    path.write_text(SWEEP.format(batches=", ".join(str(n) for n in range(1, 51))))
    runs = plan(load_experiment(path))
    assert len(runs) == RUNS
    empty, full = folder / "empty", folder / "full"
    for run in runs[:-10]:
        paths = RunPaths(full, "sweep", run.id)
        paths.root.mkdir(parents=True)
        Manifest(run=run.spec, run_id=run.id, status=SEALED).write(paths.manifest)
    return path, empty, full


def contestants(folder: Path) -> dict[str, list[str]]:
    """Name to command line."""
    scripts = Path(sys.executable).parent
    path, empty, full = sweep(folder)
    dry_run = [str(scripts / "driple-run"), str(path), "--dry-run"]
    return {
        BASELINE: [sys.executable, "-c", "pass"],
        **{f"driple-{name} --help": [str(scripts / f"driple-{name}"), "--help"] for name in COMMANDS},
        "plan 10 000 runs, table": [*dry_run, "--output", str(empty)],
        "plan 10 000 runs, --json": [*dry_run, "--json", "--output", str(empty)],
        "plan 10 000 runs, 9 990 of them sealed": [*dry_run, "--output", str(full)],
    }


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        lines = contestants(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in lines}
        for number in range(rounds + 1):
            for name, line in lines.items():
                taken = timed(lambda line=line: subprocess.run(line, check=True, stdout=subprocess.DEVNULL))  # type: ignore[misc]
                if number:  # the first round fills the caches
                    seconds[name].append(taken)
    return seconds


def summary(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    base = statistics.median(seconds[BASELINE])
    found = {}
    for name, values in seconds.items():
        ordered = sorted(values)
        found[name] = {
            "median_s": statistics.median(values),
            "p5_s": ordered[round(0.05 * (len(ordered) - 1))],
            "p95_s": ordered[round(0.95 * (len(ordered) - 1))],
            "ratio": statistics.median(values) / base,
        }
    return found


def markdown(found: dict[str, dict[str, float]], rounds: int) -> str:
    rows = "\n".join(
        f"| {name} | {row['median_s']:.3f} | {row['p5_s']:.3f} to {row['p95_s']:.3f} | {row['ratio']:.1f}x |"
        for name, row in found.items()
    )
    return f"""# Start times of commands

Whole processes, wall time, {rounds} rounds with all candidates in turn; {machine()}; {date.today()}.
The ratio is to `{BASELINE}` in the same run. Reproduce with
`python benchmarks/commands.py --write docs/benchmarks/commands.md`.

| what | median, s | 5 % to 95 %, s | ratio |
|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    found = summary(measure(arguments.rounds))
    publish(found, markdown(found, arguments.rounds), arguments)


if __name__ == "__main__":
    main()
