"""Spans and metrics of a 1-hour, 100 Hz, 4-resource trace of 8 tasks: ours, and scikit-learn's KMeans with pandas.

    python benchmarks/metrics.py [--rounds 5] [--minutes 60] [--tasks 8] [--json]
        [--write docs/benchmarks/metrics-speed.md]

Both take the same arrays. The plain way clusters with KMeans (n_init 10, which was its default for years, and 1, which
often misses the best clusters) and finds runs by pandas' groupby; it merges no flicker and names no pattern. Each round
has all candidates in turn; medians, the whole spread and the median ratio within rounds are shown. That the clusters
are the same is checked first. Run it on a quiet machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from pages import machine, parser_of, publish
from sklearn.cluster import KMeans

from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.burst_metrics import measure
from driple.pipeline.bursts.two_means import split_sorted
from driple.pipeline.traces.series import Series

HZ = 100
KINDS = {"gpu": BUSY, "gpu_mem": BUSY, "net_tx": NETWORK, "net_rx": NETWORK}


def trace(minutes: float, tasks: int) -> list[Series]:
    """Waves as training makes them: a step of about 0.7 s, bursts with noise, jitter, pauses and a tail."""
    random = np.random.default_rng(1)
    n = int(minutes * 60 * HZ)
    found = []
    for task in range(tasks):
        t = np.arange(1, n + 1) / HZ + random.uniform(-1e-3, 1e-3, n)
        steps = np.cumsum(random.normal(0.7, 0.03, int(n / HZ / 0.6)).clip(0.5))
        since = t - np.r_[0.0, steps][np.searchsorted(steps, t)]
        for name, kind in KINDS.items():
            start, length = (0.05, 0.45) if kind == BUSY else ((0.0, 0.08) if name == "net_rx" else (0.5, 0.12))
            on = (since >= start) & (since < start + length)
            if kind == BUSY:
                value = np.clip(np.where(on, 88.0, 6.0) + random.normal(0, 6, n), 0, 100)
            else:
                value = np.where(
                    on & (random.random(n) > 0.05), 6e7 * random.lognormal(0, 0.4, n), 3e3 * random.random(n)
                )
            found.append(Series(f"{task}/{name}", t, value, "", kind))
    return found


def ours(series: list[Series]) -> float:
    return sum(measure(each, step_s=0.7).burst_s or 0.0 for each in series)


def plain(series: list[Series], n_init: int) -> float:
    """What a notebook does."""
    total = 0.0
    for each in series:
        model = KMeans(n_clusters=2, n_init=n_init, random_state=0).fit(each.value.reshape(-1, 1))
        high = model.labels_ == int(np.argmax(model.cluster_centers_))
        frame = pd.DataFrame({"t": each.t_s, "value": each.value, "high": high})
        frame["run"] = (frame["high"] != frame["high"].shift()).cumsum()
        runs = frame.groupby("run").agg(
            high=("high", "first"), start=("t", "first"), end=("t", "last"), amount=("value", "mean")
        )
        bursts = runs.iloc[1:-1].query("high")
        total += float((bursts["end"] - bursts["start"]).mean())
        bursts["amount"].mean(), (runs.iloc[1:-1].query("~high").eval("end - start")).mean()
    return total


def same_clusters(series: list[Series]) -> float:
    """The least share of samples, over all series, on which exact 2-means and KMeans agree; theirs is never better."""
    least = 1.0
    for each in series:
        split = split_sorted(np.sort(each.value))
        assert split is not None
        model = KMeans(n_clusters=2, n_init=10, random_state=0, tol=0.0).fit(each.value.reshape(-1, 1))
        above = each.value > split.threshold
        inertia = sum(float(np.sum((part - part.mean()) ** 2)) for part in (each.value[above], each.value[~above]))
        assert inertia <= model.inertia_ * (1 + 1e-9)
        high = model.labels_ == int(np.argmax(model.cluster_centers_))
        least = min(least, float(np.mean(high == above)))
    return least


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--tasks", type=int, default=8)
    arguments = parser.parse_args()
    series = trace(arguments.minutes, arguments.tasks)
    agreed = same_clusters(series)
    contestants: dict[str, Callable[[], Any]] = {
        "driple: exact 2-means, spans, flicker, pattern": lambda: ours(series),
        "scikit-learn KMeans (n_init=10) + pandas": lambda: plain(series, 10),
        "scikit-learn KMeans (n_init=1) + pandas": lambda: plain(series, 1),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(arguments.rounds):
        for name, work in contestants.items():
            times[name].append(timed(work))
    first, *others = contestants
    ratios = {name: statistics.median(b / a for a, b in zip(times[first], times[name], strict=True)) for name in others}
    peers = {"numpy": np, "scikit-learn": sklearn, "pandas": pd}
    versions = [f"{name} {module.__version__}" for name, module in peers.items()]
    lines = [
        "# Speed of burst and idle metrics",
        "",
        f"{len(series)} series of {len(series[0].t_s)} samples ({arguments.tasks} tasks, 4 resources, "
        f"{arguments.minutes:g} minutes at {HZ} Hz), {arguments.rounds} rounds with all",
        f"candidates in turn; {machine(*versions)}; {date.today()}.",
        "Reproduce with `python benchmarks/metrics.py --write docs/benchmarks/metrics-speed.md`.",
        "",
        "| what | median, s | range, s | ratio |",
        "|---|---|---|---|",
    ]
    for name, taken in times.items():
        ratio = "1.0x" if name == first else f"{ratios[name]:.1f}x"
        lines.append(f"| {name} | {statistics.median(taken):.2f} | {min(taken):.2f} to {max(taken):.2f} | {ratio} |")
    lines += [
        "",
        f"Exact 2-means and KMeans (n_init=10) put at least {agreed:.4%} of the samples of every series into the same",
        "cluster; where they differ, the exact one has the smaller sum of squares.",
    ]
    text = "\n".join(lines) + "\n"
    publish({"times_s": times, "ratios": ratios, "agreed": agreed}, text, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
