"""Every contestant learns and predicts every fold; what is kept is not done again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from driple.inspector.time.time_rows import TimeRow
from time_contest.contestant import Contestant
from time_contest.folds import Fold
from time_contest.job_runs import JobRuns, machine_seconds
from time_contest.kept_predictions import KeptPredictions, Predicted

SEED = 0


def predict_folds(
    rows_of: Callable[[Fold], Sequence[TimeRow]],
    contestants: Mapping[str, Contestant],
    folds: Sequence[Fold],
    kept: KeptPredictions,
    *,
    fresh: bool = False,
) -> dict[str, list[Predicted]]:
    """Predictions by contestant, in the order of the folds; `rows_of` gives all rows as a fold may know them."""
    found: dict[str, list[Predicted]] = {}
    for name, contestant in contestants.items():
        found[name] = []
        for number, fold in enumerate(folds, start=1):
            known = None if fresh else kept.find(name, contestant, fold)
            if known is None:
                known = predict_fold(rows_of(fold), contestant, fold)
                kept.keep(name, contestant, fold, known)
                seconds = known.learn_s + known.predict_s
                say(f"{name}: {fold.part}, {fold.name} ({number} of {len(folds)}): {seconds:.1f} s")
            found[name].append(known)
    return found


def predict_fold(rows: Sequence[TimeRow], contestant: Contestant, fold: Fold) -> Predicted:
    """One contestant, one fold."""
    train, test = ([rows[number] for number in part] for part in (fold.train, fold.test))
    runs = JobRuns(rows[number] for number in fold.runs) if contestant.needs_runs else JobRuns()
    begin = time.perf_counter()
    predict = contestant.fit(train, runs, SEED)
    learned = time.perf_counter()
    seconds = predict(test)
    ended = time.perf_counter()
    samples = [contestant.samples(row, runs, SEED) for row in test] if contestant.needs_runs else []
    return Predicted(
        seconds=[None if np.isnan(one) else float(f"{one:.5g}") for one in seconds.tolist()],
        learn_s=round(learned - begin, 4),
        predict_s=round(ended - learned, 4),
        sample_runs=[len(one) for one in samples],
        sample_machine_s=[round(machine_seconds(one), 2) for one in samples],
    )


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)
