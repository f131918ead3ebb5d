"""How good inspectors are: ours, the published recipe and plain baselines, on the same rows, over several seeds.

    python benchmarks/inspector_accuracy.py --datasets datasets --setting cpu-p1w2-1g --write docs/INSPECTOR_ACCURACY.md

The published recipe would go on for thousands of epochs; it gets `--paper-epochs`, and what it reached by then.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from driple.inspector import baselines
from driple.inspector.checkpoint import save
from driple.inspector.comparison import compare
from driple.inspector.config import InspectorConfig, changed, preset
from driple.inspector.data import read_examples
from driple.inspector.examples import Examples
from driple.inspector.learn import Trained, train_inspector
from driple.inspector.scores import scores
from driple.inspector.source import find_source
from driple.inspector.start import Transfer

FloatArray: TypeAlias = NDArray[np.float64]
SPLITS = ("architecture", "random")


@dataclass(frozen=True)
class Outcome:
    """One contestant with one seed."""

    nrmse: float
    mape: float
    seconds: float
    trained: Trained | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all contestants, prints the tables, writes them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=Path("datasets"))
    parser.add_argument("--setting", action="append", required=True, help="may be given several times")
    parser.add_argument("--split", action="append", choices=SPLITS, help="default: both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--paper-epochs", type=int, default=60)
    parser.add_argument("--transfer", nargs=2, metavar=("FROM", "TO"), help="two settings")
    parser.add_argument("--transfer-seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path, help="the document")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    lines = _explained(arguments)
    for setting in arguments.setting:
        examples = read_examples(arguments.datasets, setting)
        for split in arguments.split or SPLITS:
            lines += _compared(examples, split, arguments.seeds, arguments.paper_epochs)
    if arguments.transfer:
        lines += _transferred(arguments)
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.write:
        arguments.write.write_text(text)
    return 0


def _explained(arguments: argparse.Namespace) -> list[str]:
    return [
        "# How good inspectors are",
        "",
        f"Made by benchmarks/inspector_accuracy.py on {date.today()}: {platform.machine()}, {os.cpu_count()} "
        f"processors, {arguments.threads} threads, Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        f"NRMSE and MAPE of the test rows, means over all targets ([METRICS.md](METRICS.md)); mean and deviation over "
        f"{arguments.seeds} seeds. `paper` is the published recipe, stopped after {arguments.paper_epochs} epochs. "
        "`driple: plain model only` is epoch 0, `driple: network only` the same network without a plain model.",
        "",
    ]


def contestants(paper_epochs: int) -> dict[str, InspectorConfig]:
    """Inspectors that are trained, by name."""
    ours = preset("driple")
    return {
        "driple": ours,
        "driple, ensemble of 5": changed(ours, ensemble=5),
        "driple: plain model only": changed(ours, epochs=1, learning_rate=1e-12),
        "driple: network only": changed(ours, plain=False),
        "paper": changed(preset("paper"), epochs=paper_epochs),
    }


def _compared(examples: Examples, split: str, seeds: int, paper_epochs: int) -> list[str]:
    test = examples.side(split, "test")
    sides = [len(examples.side(split, side)) for side in ("train", "val", "test")]
    found: dict[str, list[Outcome]] = {}
    for seed in range(seeds):  # interleaved: what slows the machine down slows all contestants
        for name in baselines.BASELINES:
            predict, seconds = _timed(partial(_baseline, name, examples, split, seed))
            found.setdefault(name, []).append(_scored(test, predict(test), seconds))
        for name, config in contestants(paper_epochs).items():
            trained, seconds = _timed(partial(train_inspector, examples, config, split=split, seed=seed))
            found.setdefault(name, []).append(_scored(test, trained.inspector.predict(test)[0], seconds, trained))
            print(
                f"{examples.setting} {split} seed {seed} {name}: {found[name][-1].nrmse:.4f}",
                file=sys.stderr,
                flush=True,
            )
    lines = [
        f"## {examples.setting}, split by {split}",
        "",
        f"{sides[0]} rows to train, {sides[1]} to validate, {sides[2]} to test; {examples.provenance}.",
        "",
        "| predictor | NRMSE | MAPE | seconds |",
        "|---|---|---|---|",
    ]
    for name, outcomes in sorted(found.items(), key=lambda one: statistics.mean(each.nrmse for each in one[1])):
        lines.append(
            f"| {name} | {_spread([one.nrmse for one in outcomes])} | {_spread([one.mape for one in outcomes])} "
            f"| {statistics.median(one.seconds for one in outcomes):.1f} |"
        )
    return [*lines, "", *_race(found["driple"], found["paper"]), ""]


def _race(ours: list[Outcome], paper: list[Outcome]) -> list[str]:
    """How long ours takes to the best validation error of the published recipe, all of its preparation included."""
    shares = []
    for one, other in zip(ours, paper, strict=True):
        assert one.trained is not None and other.trained is not None
        wanted = other.trained.fits[0]
        best = min(row["val_nrmse"] for row in wanted.history)
        reached_by_paper = next(row["seconds"] for row in wanted.history if row["val_nrmse"] == best)
        history = one.trained.fits[0].history
        reached = next((row["seconds"] for row in history if row["val_nrmse"] <= best), None)
        if reached is not None:
            before = one.seconds - one.trained.seconds
            shares.append((before + reached) / (other.seconds - other.trained.seconds + reached_by_paper))
    ratio = statistics.mean(one.nrmse for one in ours) / statistics.mean(one.nrmse for one in paper)
    reached_text = (
        f"in {statistics.median(shares):.3f} of its time (median of {len(shares)} of {len(ours)} seeds)"
        if shares
        else "never"
    )
    return [
        f"`driple` reaches the best validation NRMSE of `paper` {reached_text}, preparation of both included, and ends "
        f"at {ratio:.2f} of its test NRMSE."
    ]


def _transferred(arguments: argparse.Namespace) -> list[str]:
    """From one setting to another, against training from scratch."""
    source, target = (read_examples(arguments.datasets, setting) for setting in arguments.transfer)
    test = target.side("architecture", "test")
    lines = [
        f"## Transfer from {source.setting} to {target.setting}",
        "",
        "Wall time of training to the validation NRMSE that both reach, from scratch and transferred, and test NRMSE "
        "at the end; split by architecture, medians and [range] over seeds.",
        "",
        "| inspector | tuned | times faster to equal error | s, scratch | s, moved | NRMSE, scratch | NRMSE, moved |",
        "|---|---|---|---|---|---|---|",
    ]
    known = contestants(arguments.paper_epochs)
    for name in ("driple", "driple: network only", "paper"):
        found: dict[str, list[dict[str, Any]]] = {"half": [], "mlp": []}
        for seed in range(arguments.transfer_seeds):
            learned = train_inspector(source, known[name], seed=seed)
            with tempfile.TemporaryDirectory() as folder:
                save(Path(folder) / source.setting, learned.inspector)
                start = find_source(source.setting, Path(folder), target.setting, "worker")
            scratch = train_inspector(target, known[name], seed=seed)
            for tune, rows in found.items():
                moved = train_inspector(target, start.config, seed=seed, transfer=Transfer(source=start, tune=tune))
                nrmse = [_scored(test, one.inspector.predict(test)[0], 0.0).nrmse for one in (scratch, moved)]
                rows.append({**compare(moved.fits, scratch.fits), "nrmse": nrmse})
                print(f"transfer {name} {tune} seed {seed}: {rows[-1]}", file=sys.stderr, flush=True)
        for tune, rows in found.items():
            faster = [row["times_faster"] for row in rows if row["times_faster"] is not None]
            lines.append(
                f"| {name} | {tune} | {_median(faster)} | {_median([row['scratch_seconds'] for row in rows])} "
                f"| {_median([row['seconds'] for row in rows])} | {_spread([row['nrmse'][0] for row in rows])} "
                f"| {_spread([row['nrmse'][1] for row in rows])} |"
            )
    return [*lines, ""]


def _median(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def _baseline(name: str, examples: Examples, split: str, seed: int) -> Callable[[Examples], FloatArray]:
    return baselines.fit(name, examples.side(split, "train"), examples.side(split, "val"), seed)


def _timed(what: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = what()
    return result, time.perf_counter() - begin


def _scored(test: Examples, predicted: FloatArray, seconds: float, trained: Trained | None = None) -> Outcome:
    overall = scores(test.targets(), predicted).overall
    assert overall.nrmse is not None and overall.mape is not None
    return Outcome(overall.nrmse, overall.mape, seconds, trained)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.pstdev(values):.3f}"


if __name__ == "__main__":
    sys.exit(main())
