"""The contest of step-time predictors on the measured rows: figures and page.

    python benchmarks/time_results.py --write docs/benchmarks/training-time.md
    python benchmarks/time_results.py --contestants ours,trees --folds architecture,family
    python benchmarks/time_results.py --page-only --write docs/benchmarks/training-time.md

Predictions are kept in --kept by contestant, fold and hash of the datasets, so a run that was stopped goes on. The
figures are those of all kept predictions; they go to --data, and the page is made from them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from pages import machine, parser_of, publish
from threadpoolctl import threadpool_limits
from time_contest.answer_times import answer_seconds
from time_contest.contest import predict_folds, say
from time_contest.contestant import Contestant
from time_contest.figures import figures_of, measured_rows, names_of_places
from time_contest.folds import PARTS, Fold, folds_of
from time_contest.kept_predictions import KeptPredictions, Predicted, hash_of_datasets
from time_contest.page import page
from time_contest.registry import contestants
from time_contest.simulated_rows import SimulatedRows

from driple.contracts.errors import UnknownName
from driple.contracts.run_dir import replacing
from driple.inspector.time.time_rows import measured_settings, read_time_rows

DATA = Path("benchmarks/data/training-time.json")
KEPT = Path("build/time-contest")
ANSWERS = "answers"
"""Beside the parts of folds.py: times to answer."""
THREADS = 1
"""Fits are small: where another program uses a processor, two threads take five times as long as one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts what is asked for and missing, then writes figures and page."""
    options = _options(argv)
    if options.page_only:
        figures = json.loads(options.data.read_text())
    else:
        torch.set_num_threads(THREADS)
        with threadpool_limits(THREADS):
            figures = _measure(options)
        with replacing(options.data) as stream:
            json.dump(figures, stream, separators=(",", ":"))
            stream.write("\n")
    publish(figures, page(figures), options)
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--datasets", type=Path, default=Path("datasets"))
    parser.add_argument("--contestants", type=_names, metavar="A,B", help="default: all")
    parser.add_argument("--folds", type=_parts, metavar="A,B", help=f"default: {','.join([*PARTS, ANSWERS])}")
    parser.add_argument("--fresh", action="store_true", help="predict anew what is kept")
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder of predictions (%(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="figures (%(default)s)")
    parser.add_argument("--page-only", action="store_true", help="make the page from the figures that are there")
    return parser.parse_args(argv)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parts(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    for name in found:
        if name not in (*PARTS, ANSWERS):
            raise argparse.ArgumentTypeError(f"no folds {name!r}: expected {', '.join([*PARTS, ANSWERS])}")
    return found


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    kept = KeptPredictions(options.kept, hash_of_datasets(options.datasets, measured_settings(options.datasets)))
    simulated = SimulatedRows(read_time_rows(options.datasets), options.datasets, kept.folder, say)
    rows = simulated.usual
    every = contestants(options.kept)
    for name in options.contestants or ():
        if name not in every:
            raise UnknownName("contestant", name, tuple(every))
    asked = {name: every[name] for name in options.contestants or every}
    parts = options.folds or [*PARTS, ANSWERS]
    folds = folds_of(rows, [part for part in PARTS if part in parts])
    predict_folds(simulated.of, asked, folds, kept, fresh=options.fresh)
    every_fold = folds_of(rows, tuple(PARTS))
    figures = figures_of(rows, every, every_fold, _known(kept, every, every_fold))
    answers = kept.answers()
    if ANSWERS in parts:
        wanted = {name: one for name, one in asked.items() if options.fresh or name not in answers}
        answers |= _answers(simulated, wanted)
        kept.keep_answers(answers)
    return {
        "made": {
            "date": str(date.today()),
            "machine": machine(
                f"numpy {np.__version__}, scikit-learn {sklearn.__version__}, torch {torch.__version__}"
            ),
            "minutes": round((time.perf_counter() - begin) / 60, 1),
        },
        **figures,
        "answers": answers,
        "rows": measured_rows(rows, names_of_places(rows)),
    }


def _known(
    kept: KeptPredictions, every: Mapping[str, Contestant], folds: Sequence[Fold]
) -> dict[str, dict[int, Predicted]]:
    return {
        name: {
            number: found
            for number, fold in enumerate(folds)
            if (found := kept.find(name, contestant, fold)) is not None
        }
        for name, contestant in every.items()
    }


def _answers(simulated: SimulatedRows, asked: Mapping[str, Contestant]) -> dict[str, float]:
    fold = folds_of(simulated.usual, ["architecture"])[0]
    simulation_s = simulated.answer_seconds() if asked else 0.0
    found = {}
    for name, contestant in asked.items():
        found[name] = float(f"{answer_seconds(simulated.usual, contestant, fold, simulation_s):.3g}")
        say(f"{name}: answers in {1e3 * found[name]:.3g} ms")
    return found


if __name__ == "__main__":
    sys.exit(main())
