"""The law of costs: a time is a sum of amounts of work, each times a rate that is never negative.

    seconds = sum over amounts i of rate_i * amount_i        rate_i >= 0

Amounts are those of the graph: FLOPs, bytes and number of ops by class, bytes received and sent, and one for each step.
Twice the work is twice the time, also for a graph far larger than all that were seen, which no regression on
logarithms knows. Amounts of the whole graph count three times: always, only with synchronous and only with asynchronous
updates. The height of a burst is no sum, but what passes in it is: height = (bytes in a burst) / (its duration).

Rates are those that make relative errors least, by non-negative least squares, with a penalty against large ones, the
more so the more special they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.metrics import AMOUNT, BURST, COLUMNS, TARGETS
from driple.inspector.facts import FACTS

FloatArray: TypeAlias = NDArray[np.float64]

AMOUNTS: tuple[str, ...] = tuple(
    name
    for name in FACTS
    if name.startswith("log_") and name.endswith(("_ops", "_kilobytes", "_megaflops")) and "largest" not in name
)
"""Facts that are log1p of an amount of work."""
GENERAL = ("log_ops", "log_kilobytes", "log_megaflops", "log_received_kilobytes", "log_sent_kilobytes")
"""Amounts of the whole graph."""
OF_A_CLASS = 30.0
OF_A_MODE = 10.0
"""How much more a rate is penalised that is of one class of ops, or of one way to update. Else what is common to all
graphs would be laid on the classes that the training rows have, and graphs of other classes would cost nothing."""
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3)
_TINY = 0.01
"""Share of the median below which a value counts as that: relative errors of next to nothing say nothing."""
_FEWEST = 8

_BURSTS = {target.resource.key: place for place, target in enumerate(TARGETS) if target.metric is BURST}
_BURST_OF = {place: _BURSTS[target.resource.key] for place, target in enumerate(TARGETS) if target.metric is AMOUNT}


@dataclass(frozen=True)
class CostLaw:
    """Rates of the 12 targets, learned on training rows."""

    amounts: tuple[str, ...]
    """Facts that they are rates of."""
    rates: tuple[tuple[float, ...] | None, ...]
    """[12][columns of `_work`], None for a target without a law; of a burst amount those of what passes in a burst."""

    def __post_init__(self) -> None:
        if len(self.rates) != len(COLUMNS):
            raise BadInput(f"law of costs: rates of {len(self.rates)} targets, expected {len(COLUMNS)}")
        for name in self.amounts:
            if name not in AMOUNTS:
                raise BadInput(f"law of costs: no such amount {name!r}; train again")
        expected = len(_special(self.amounts))
        if any(rates is not None and len(rates) != expected for rates in self.rates):
            raise BadInput(f"law of costs: expected {expected} rates of each target")

    def estimate(self, facts: FloatArray) -> FloatArray:
        """[n, 12] in the targets' own units, from facts [n, len(FACTS)]; NaN where there is no law."""
        work = _work(facts, self.amounts)
        found = np.full((len(facts), len(COLUMNS)), np.nan)
        for place, rates in enumerate(self.rates):
            if rates is not None:
                found[:, place] = work @ np.asarray(rates)
        return _heights(found)

    @classmethod
    def fit(cls, facts: FloatArray, targets: FloatArray, folds: NDArray[np.int64]) -> tuple[CostLaw, FloatArray]:
        """The law of training rows, and what laws without a row's own fold say of it.

        Args:
            facts: [n, len(FACTS)], not scaled.
            targets: [n, 12] in their own units, NaN where null.
            folds: [n], which rows are held back together.
        """
        varied = [name for name in AMOUNTS if np.nanmax(facts[:, FACTS.index(name)], initial=0.0) > 0]
        work = _work(facts, varied)
        special = _special(varied)
        rates: list[tuple[float, ...] | None] = []
        held = np.full(targets.shape, np.nan)
        for place in range(len(COLUMNS)):
            burst = _BURST_OF.get(place)
            values = targets[:, place] * (1.0 if burst is None else targets[:, burst])
            solved = _fit_one(work, values, folds, special)
            rates.append(None if solved is None else tuple(float(rate) for rate in solved[0]))
            if solved is not None:
                held[:, place] = solved[1]
        return cls(tuple(varied), tuple(rates)), _heights(held)


def _work(facts: FloatArray, names: Sequence[str]) -> FloatArray:
    """One and the amounts; then one and the general amounts, with synchronous and with asynchronous updates."""
    columns = facts[:, [FACTS.index(name) for name in names]]
    amounts = np.concatenate([np.ones((len(facts), 1)), np.expm1(np.nan_to_num(columns, nan=0.0))], axis=1)
    is_async = np.nan_to_num(facts[:, [FACTS.index("is_async")]], nan=0.0)
    general = amounts[:, _general(names)]
    return np.concatenate([amounts, general * (1 - is_async), general * is_async], axis=1)


def _special(names: Sequence[str]) -> FloatArray:
    """What the penalty of each rate is multiplied with."""
    general = _general(names)
    own = np.where(general, 1.0, OF_A_CLASS)
    return np.concatenate([own, np.full(2 * int(general.sum()), OF_A_MODE)])


def _general(names: Sequence[str]) -> NDArray[np.bool_]:
    """Of one and the amounts: whether it is of the whole graph."""
    return np.array([True, *(name in GENERAL for name in names)])


def _heights(found: FloatArray) -> FloatArray:
    """Turns what passes in bursts into their height."""
    heights = found.copy()
    for place, burst in _BURST_OF.items():
        duration = found[:, burst]
        heights[:, place] = np.where(duration > 0, found[:, place] / np.where(duration > 0, duration, 1.0), np.nan)
    return heights


def _fit_one(
    work: FloatArray, values: FloatArray, folds: NDArray[np.int64], special: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Rates by the penalty that errs least on folds held back, and what was said of those; None with too few values."""
    known = ~np.isnan(values)
    if (values[known] > 0).sum() < _FEWEST:
        return None
    values = np.maximum(values, _TINY * np.median(values[known & (values > 0)]))
    tried = []
    for penalty in PENALTIES:
        held = np.full(len(values), np.nan)
        for fold in np.unique(folds):
            out = folds == fold
            rest = known & ~out
            if rest.any():
                held[out] = work[out] @ _rates(work[rest], values[rest], penalty, special)
        judged = known & (held > 0)
        missed = (known & ~judged).sum()
        error = float((np.log(held[judged] / values[judged]) ** 2).sum()) + 9.0 * missed
        tried.append((error, penalty, held))
    _, penalty, held = min(tried, key=lambda one: one[0])
    return _rates(work[known], values[known], penalty, special), held


def _rates(work: FloatArray, values: FloatArray, penalty: float, special: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    scale = work.max(axis=0)
    there = scale > 0
    relative = work[:, there] / scale[there] / values[:, None]
    ridge = np.diag(penalty * special[there] * np.sqrt(len(values)) * relative.mean(axis=0))
    wanted = np.concatenate([np.ones(len(values)), np.zeros(len(ridge))])
    solved, _ = nnls(np.concatenate([relative, ridge]), wanted, maxiter=100 * len(wanted))
    rates = np.zeros(work.shape[1])
    rates[there] = solved / scale[there]
    return rates
