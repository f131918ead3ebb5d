"""Draws the pictures of docs/guides/metrics.md from the example runs and from made-up series.

python benchmarks/metrics_pictures.py [--out docs/figures]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.burst_metrics import BURST_IDLE_BURST, Analysis, Bib, analyse  # noqa: E402
from driple.pipeline.bursts.burst_plot import draw  # noqa: E402
from driple.pipeline.bursts.spans import grid, spans_of  # noqa: E402
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s  # noqa: E402
from driple.pipeline.bursts.two_means import split_sorted  # noqa: E402
from driple.pipeline.traces.load_run import load_run  # noqa: E402
from driple.pipeline.traces.series import Series  # noqa: E402

RUNS = Path(__file__).resolve().parents[1] / "tests/data/runs"


def plain(series: Series) -> Analysis:
    """What 2-means alone makes of a series."""
    split = split_sorted(np.sort(series.value))
    assert split is not None
    spans = spans_of(series.value > split.threshold, grid(series.t_s))
    bursts = spans.whole & spans.high
    idles = spans.whole & ~spans.high
    bib = Bib(
        BURST_IDLE_BURST,
        burst_s=float(np.mean(spans.duration_s[bursts])),
        idle_s=float(np.mean(spans.duration_s[idles])),
        bursts=int(np.count_nonzero(bursts)),
    )
    return Analysis(bib, series.t_s, series.value, spans, split.threshold)


def save(figure: pyplot.Figure, path: Path) -> None:
    figure.savefig(path, dpi=70, metadata={"Software": None})
    pyplot.close(figure)
    print(path, path.stat().st_size)


def real_run(out: Path) -> None:
    run = load_run(next(RUNS.glob("*lenet*")))
    task = "worker:0"
    series = resource_series(run, task)["net_tx"]
    steps = run.tasks[task].steps
    assert series is not None and steps is not None
    figure, axes = pyplot.subplots(2, 1, figsize=(11, 4.2), sharex=True, layout="constrained")
    draw(axes[0], replace(series, name="worker TX, 2-means alone"), plain(series))
    draw(axes[1], replace(series, name="worker TX, as measured"), analyse(series, step_s=step_time_s(run, task)))
    for axis in axes:
        for start in steps.start_s:
            axis.axvline(start, color="#b03a2e", linewidth=0.8)
        axis.set_xlim(steps.start_s[0], steps.start_s[9])
    axes[1].set_xlabel("s; red lines: training steps")
    save(figure, out / "flicker.png")


def patterns(out: Path) -> None:
    random = np.random.default_rng(4)
    t = np.arange(1, 601) * 0.01
    on = (t % 1.0) < 0.35
    wave = np.where(on, 85.0, 6.0) + random.normal(0, 7, 600)
    keep_alive = np.zeros(600)
    keep_alive[::83] = 6600.0
    shown = (
        Series("a wave", t, wave, "%", BUSY),
        Series("busy with noise", t, 70 + random.normal(0, 8, 600), "%", BUSY),
        Series("keep-alives", t, keep_alive, "B/s", NETWORK),
        Series("one absurd point", t, np.where(np.arange(600) == 300, 1800.0, wave), "%", BUSY),
    )
    figure, axes = pyplot.subplots(4, 1, figsize=(11, 6.4), sharex=True, layout="constrained")
    for axis, series in zip(axes, shown, strict=True):
        draw(axis, series, analyse(series))
    axes[-1].set_xlabel("s; the absurd point, 1800 %, is left out")
    save(figure, out / "patterns.png")


def held(out: Path) -> None:
    random = np.random.default_rng(5)
    t = np.arange(1, 1201) * 0.01
    update = ((t - 0.01) / 0.15 + 1e-9).astype(int)
    # Once in 150 ms a driver adds what it has counted since.
    busy = (update % 8) < 3
    gain = np.where(busy, 9e6 * random.uniform(0.9, 1.1, 1200)[update], 2e3)
    new = np.r_[True, update[1:] != update[:-1]]
    count = np.cumsum(np.where(new, gain, 0.0))
    from driple.pipeline.traces.rates import rate

    raw = Series("rate of each read", t[1:], np.diff(count) / np.diff(t), "B/s", NETWORK, 0.01)
    found = rate(t, count)
    seen = Series("rate of each real update", found.t_s, found.per_s, "B/s", NETWORK, found.refresh.period_s)
    figure, axes = pyplot.subplots(2, 1, figsize=(11, 4.0), sharex=True, layout="constrained")
    draw(axes[0], raw, plain(raw))
    draw(axes[1], seen, analyse(seen))
    axes[1].set_xlabel("s; a counter that is renewed every 150 ms and read every 10 ms")
    save(figure, out / "held.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for picture in (real_run, patterns, held):
        picture(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
