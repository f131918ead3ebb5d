"""Burst and idle durations of one series. docs/guides/metrics.md explains each rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.spans import Grid, Spans, Weights, grid, spans_of, typical, without_flicker, without_pauses
from driple.pipeline.bursts.two_means import Split, split_without_tail
from driple.pipeline.traces.refresh import Refresh, find_refresh, real_updates
from driple.pipeline.traces.series import LEVEL, FloatArray, Samples, Series, usable

IDLE = "I"
BURST_IDLE_BURST = "BIB"
BURST = "B"
UNKNOWN = "?"

FLICKER = 0.2
"""A span that weighs less than this share of a typical span of its label is flicker."""
PAUSE = {NETWORK: 0.2, BUSY: 0.05, LEVEL: 0.0}
"""An idle span shorter than this share of the cycle does not end a burst: traffic pauses, processors hardly do. If the
step is known, longer spans are not flicker."""
PAUSE_OF_IDLE = 0.5
"""Gaps of at least this share of the typical idle duration are never merged."""
UNSURE = 2.5
"""A span of up to this many samples may always be flicker."""
SEPARATION = 4.0
"""Two levels are real if their means differ by this many standard deviations of the samples around them (the best split
of a normal distribution reaches 2.6, of a uniform one 3.5) ..."""
CONTRAST = {NETWORK: 0.2, BUSY: 0.5, LEVEL: 0.0}
"""... or if idle is at most this share of burst, in series whose zero means idle."""
FLOOR = {NETWORK: 100_000.0, BUSY: 5.0, LEVEL: 0.0}
"""Less than this (B/s, %) is idle, whatever its shape: keep-alives, housekeeping."""
PACKETS_FLOOR = 100.0
"""The same in packets a second."""
ABSURD = 3.0
"""Outliers are this many times further from the median than all but the few furthest samples."""
ABSURD_SHARE = 0.001
FINEST = 2.0
"""A duration of fewer refresh periods is not resolved."""
FEW_BURSTS = 3


@dataclass(frozen=True)
class Bib:
    """Burst-idle-burst metrics of one series. Durations in seconds, amounts in its unit; None if undetermined."""

    pattern: str
    """`I` (idle throughout), `BIB` (burst, idle, burst), `B` (busy throughout), `?` (no data)."""
    burst_s: float | None = None
    """Mean duration of whole bursts; of `B` the step or, if unknown, the observed time; of `I` 0."""
    idle_s: float | None = None
    burst_amount: float | None = None
    """Mean value during bursts; of `I` 0."""
    idle_amount: float | None = None
    bursts: int = 0
    """Whole bursts."""
    period_s: float | None = None
    """Mean time from the start of a burst to the start of the next."""
    refresh_s: float | None = None
    """The refresh period of the source."""
    flags: tuple[str, ...] = ()
    burst_s_median: float | None = None
    burst_s_spread: float | None = None
    """Interquartile range; likewise below."""
    idle_s_median: float | None = None
    idle_s_spread: float | None = None
    burst_amount_median: float | None = None
    burst_amount_spread: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "flags": list(self.flags)}


@dataclass(frozen=True)
class Analysis:
    """The metrics of a series with their intermediate results, for plots."""

    bib: Bib
    t_s: FloatArray
    """The samples that were used: updates of the source, without outliers."""
    value: FloatArray
    spans: Spans | None
    """None unless the pattern is BIB."""
    threshold: float | None


def measure(series: Series, *, step_s: float | None = None) -> Bib:
    """The metrics of a series of rates or levels. The training step, if known, gives the length of a cycle."""
    return analyse(series, step_s=step_s).bib


def analyse(series: Series, *, step_s: float | None = None) -> Analysis:
    """Like `measure`, with the intermediate results."""
    step_s = step_s if step_s is not None and np.isfinite(step_s) and step_s > 0 else None
    samples = usable(series.t_s, series.value)
    flags = [*series.flags, *_count("nulls", samples.dropped)]
    if len(samples.t_s) < 2:
        return Analysis(
            Bib(UNKNOWN, refresh_s=series.refresh_s, flags=(*flags, "no_data")), samples.t_s, samples.value, None, None
        )
    # Samples that a device stamps itself are never held.
    samples, refresh = _updated(samples, series.refresh_s or series.device_s, step_s)
    samples, ordered, absurd = _without_absurd(samples)
    flags += [*_count("absurd", absurd), *(["held"] if refresh.held else [])]
    times = grid(samples.t_s, samples.period_s, series.device_s)
    flags += _count("gaps", len(times.after_gap))
    if step_s is not None and refresh.period_s is not None and step_s < FINEST * refresh.period_s:
        flags.append("step_finer_than_refresh")
    floor = PACKETS_FLOOR if series.unit == "packets/s" else FLOOR[series.kind]
    split = split_without_tail(ordered)
    if split is not None:
        spans = _spans(samples.value, times, split, series.kind, step_s)
        if _separate(samples.value, times, spans, series.kind, floor):
            bib = _of_bursts(samples.value, times, spans, refresh, flags)
            return Analysis(bib, samples.t_s, samples.value, spans, split.threshold)
    bib = _of_flat(samples.value, times, floor, refresh, step_s, flags)
    return Analysis(bib, samples.t_s, samples.value, None, None)


def _updated(samples: Samples, known_s: float | None, step_s: float | None) -> tuple[Samples, Refresh]:
    """Replaces held values by the updates of the source. Rates of counters are updates already."""
    if known_s is not None:
        return samples, Refresh(known_s, known_s > 1.5 * samples.period_s)
    refresh = find_refresh(samples.t_s, samples.value, step_s=step_s, period_s=samples.period_s)
    if refresh.held and refresh.period_s is not None:
        t_s, value = real_updates(samples.t_s, samples.value, refresh.period_s)
        samples = Samples(t_s, value, samples.dropped)
    return samples, refresh


def _without_absurd(samples: Samples) -> tuple[Samples, FloatArray, int]:
    """Without the few extreme outliers; also the remaining values in order."""
    ordered = np.sort(samples.value)
    n = len(ordered)
    few = max(2 if n >= 200 else 1, int(n * ABSURD_SHARE))
    if n < 2 * few + 3:
        return samples, ordered, 0
    middle = float(ordered[n // 2])
    ends = np.sort(np.abs(np.r_[ordered[: few + 1], ordered[-few - 1 :]] - middle))[::-1]
    limit = ABSURD * float(ends[few])
    if ends[0] <= limit:
        return samples, ordered, 0
    keep = np.abs(samples.value - middle) <= limit
    ordered = ordered[np.abs(ordered - middle) <= limit]
    return Samples(samples.t_s[keep], samples.value[keep], samples.dropped), ordered, n - len(ordered)


def _spans(value: FloatArray, times: Grid, split: Split, kind: str, step_s: float | None) -> Spans:
    """Bursts and idle spans, with flicker merged by the rules of the kind of series."""
    pause = PAUSE[kind]
    never_s = max(pause * step_s, UNSURE * times.period_s) if pause and step_s is not None else np.inf
    spans = spans_of(value > split.threshold, times)
    weights = Weights(value, times, (split.low, split.high), spans)
    spans = without_flicker(spans, weights, FLICKER, never_s)
    if pause:
        idle_s, burst_s = (typical(spans.duration_s[which]) for which in (~spans.high, spans.high))
        cycle_s = step_s if step_s is not None else idle_s + burst_s
        spans = without_pauses(spans, min(pause * cycle_s, PAUSE_OF_IDLE * idle_s))
    if kind == NETWORK:  # bursts are merged now, so small spans between them are flicker
        spans = without_flicker(spans, weights, FLICKER, never_s)
    return spans


def _separate(value: FloatArray, times: Grid, spans: Spans, kind: str, floor: float) -> bool:
    """Whether there are two levels: noise around one level has a best split, too."""
    if spans.high.all() or not spans.high.any():
        return False
    middle = float(value[0])
    distance = value - middle
    weighted = distance * times.duration_s
    time, first, second = (
        np.add.reduceat(each, spans.first) for each in (times.duration_s, weighted, weighted * distance)
    )
    (burst, burst_var), (idle, idle_var) = (
        _moments(time[which], first[which], second[which]) for which in (spans.high, ~spans.high)
    )
    if kind == NETWORK and burst + middle < floor:
        return False
    if kind == BUSY and burst - idle < floor:
        return False
    if CONTRAST[kind] and idle + middle <= CONTRAST[kind] * (burst + middle):
        return True
    return burst - idle >= SEPARATION * float(np.sqrt((burst_var + idle_var) / 2))


def _moments(time: FloatArray, first: FloatArray, second: FloatArray) -> tuple[float, float]:
    total = float(np.sum(time))
    mean = float(np.sum(first)) / total
    return mean, max(0.0, float(np.sum(second)) / total - mean**2)


def _of_bursts(value: FloatArray, times: Grid, spans: Spans, refresh: Refresh, flags: list[str]) -> Bib:
    bursts, idles = spans.whole & spans.high, spans.whole & ~spans.high
    length = spans.duration_s
    amounts, seconds = _amounts(value, times, spans)
    used, rest = (bursts if bursts.any() else spans.high), (idles if idles.any() else ~spans.high)
    count = int(np.count_nonzero(bursts))
    burst_s, idle_s = _mean(length[bursts]), _mean(length[idles])
    found = list(flags)
    if burst_s is None:
        found.append("no_whole_burst")
    elif count < FEW_BURSTS:
        found.append("few_bursts")
    if idle_s is None:
        found.append("no_whole_idle")
    for name, duration_s in (("burst_s", burst_s), ("idle_s", idle_s)):
        if duration_s is not None and refresh.period_s is not None and duration_s < FINEST * refresh.period_s:
            found.append(f"{name}_finer_than_refresh")
    return Bib(
        pattern=BURST_IDLE_BURST,
        burst_s=burst_s,
        idle_s=idle_s,
        burst_amount=float(np.average(amounts[used], weights=seconds[used])),
        idle_amount=float(np.average(amounts[rest], weights=seconds[rest])),
        bursts=count,
        period_s=_period(spans, burst_s, idle_s),
        refresh_s=refresh.period_s,
        flags=tuple(found),
        burst_s_median=_quantile(length[bursts], 0.5),
        burst_s_spread=_spread(length[bursts]),
        idle_s_median=_quantile(length[idles], 0.5),
        idle_s_spread=_spread(length[idles]),
        burst_amount_median=_quantile(amounts[used], 0.5),
        burst_amount_spread=_spread(amounts[used]),
    )


def _of_flat(
    value: FloatArray, times: Grid, floor: float, refresh: Refresh, step_s: float | None, flags: list[str]
) -> Bib:
    """A series of one level: idle or busy for the whole step, or for the observed time."""
    level = float(np.average(value, weights=times.duration_s))
    length = step_s if step_s is not None else float(np.sum(times.duration_s))
    found = tuple(flags) if step_s is not None else (*flags, "duration_is_time_observed")
    busy = level > floor
    return Bib(
        BURST if busy else IDLE,
        burst_s=length if busy else 0.0,
        idle_s=0.0 if busy else length,
        burst_amount=level if busy else 0.0,
        idle_amount=None if busy else level,
        period_s=step_s,
        refresh_s=refresh.period_s,
        flags=found,
        burst_amount_median=float(np.median(value)) if busy else None,
        burst_amount_spread=_spread(value) if busy else None,
    )


def _amounts(value: FloatArray, times: Grid, spans: Spans) -> tuple[FloatArray, FloatArray]:
    """Mean value of each span, and the time over which it was taken.

    Samples at the edges are part burst and part idle. They count for the amount only if a span has no others.
    """
    weighted = value * times.duration_s
    total, seconds = np.add.reduceat(weighted, spans.first), np.add.reduceat(times.duration_s, spans.first)
    long = spans.last - spans.first >= 2
    for edge in (spans.first[long], spans.last[long]):
        total[long] -= weighted[edge]
        seconds[long] -= times.duration_s[edge]
    return total / seconds, seconds


def _period(spans: Spans, burst_s: float | None, idle_s: float | None) -> float | None:
    """The mean time between starts of bursts that were observed without a gap."""
    at = np.flatnonzero(spans.high[:-2] & spans.high[2:] & spans.whole[:-2] & spans.whole[1:-1])
    if len(at):
        return float(np.mean(spans.start_s[at + 2] - spans.start_s[at]))
    return burst_s + idle_s if burst_s is not None and idle_s is not None else None


def _mean(values: FloatArray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _quantile(values: FloatArray, share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def _spread(values: FloatArray) -> float | None:
    return float(np.quantile(values, 0.75) - np.quantile(values, 0.25)) if len(values) else None


def _count(name: str, count: int) -> list[str]:
    return [f"{name}:{count}"] if count else []
