"""The cost model: a time is a sum of amounts of work, each times a rate that is never negative.

    seconds = sum over amounts i of rate_i * amount_i        rate_i >= 0

Amounts come from the graph: FLOPs, bytes and ops by class, bytes from the busiest server, bytes sent, and a constant.
Twice the work is twice the time, also for a graph far larger than the training graphs. Amounts of the whole graph have
three rates: always, with synchronous and with asynchronous updates. Amounts of one op class are capped at the greatest
training amount. The level of a network burst is bytes per step / busy seconds, and busy seconds are such a sum; other
levels have no cost model.

Rates minimise relative absolute errors, so that the model is robust to outlier rows: reweighted non-negative least
squares with a penalty that grows with how special a rate is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS, DURATION, LEVEL, TARGET_OF_COLUMN
from driple.inspector.base_model.nonnegative_lstsq import nonnegative
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray
from driple.inspector.data.node_features import KILOBYTE
from driple.inspector.data.workload_features import WORKLOAD_FEATURES

_NOT_WORK = ("log_largest_kilobytes", "log_largest_megaflops", "log_received_kilobytes")
"""Received bytes count by the busiest server, for which a step waits."""
AMOUNTS: tuple[str, ...] = tuple(
    name
    for name in WORKLOAD_FEATURES
    if name.startswith("log_") and name.endswith(("_ops", "_kilobytes", "_megaflops")) and name not in _NOT_WORK
)
"""Features that are log1p of an amount of work."""
GENERAL = ("log_ops", "log_kilobytes", "log_megaflops", "log_busiest_kilobytes", "log_sent_kilobytes")
"""Amounts of the whole graph."""
OF_A_CLASS = 30.0
OF_A_MODE = 10.0
"""Factors of the penalty for rates of one class of ops, and of one update mode. Without them, costs common to all
graphs would be attributed to the classes of the training rows, and graphs of other classes would cost nothing."""
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3)
TURNS = 4
"""Iterations of the reweighted least squares."""
_SMALL = 0.2
"""Share of the median time: smaller times count as this large in relative errors."""
_EXACT = 0.05
"""Relative error below which the weight of a row does not grow."""
_FEWEST = 8

_CROSSING = {"net_tx": "log_sent_kilobytes", "net_rx": "log_received_kilobytes"}
"""Resources whose burst level has a cost model: the feature with the bytes of a step."""


@dataclass(frozen=True)
class CostModel:
    """Rates of each target, fitted on training rows."""

    amounts: tuple[str, ...]
    """Names of the features."""
    usual: tuple[float, ...]
    """Mean of each feature over the training rows, used where it is unknown."""
    greatest: tuple[float, ...]
    """Greatest training amount of each."""
    rates: tuple[tuple[float, ...] | None, ...]
    """[T][columns of `_work`]; for a level, rates of the busy seconds of the link; None without a cost model."""

    def __post_init__(self) -> None:
        if {len(self.usual), len(self.greatest)} - {len(self.amounts)}:
            raise BadInput(f"cost model: expected usual and greatest of each of {len(self.amounts)} amounts")
        for name in self.amounts:
            if name not in AMOUNTS or self.amounts.count(name) > 1:
                raise BadInput(f"cost model: no such amount {name!r}, or twice; train again")
        if min(self.greatest, default=0.0) < 0 or any(rates and min(rates) < 0 for rates in self.rates):
            raise BadInput("cost model: negative rates or amounts")
        expected = len(_special(self.amounts))
        if any(rates is not None and len(rates) != expected for rates in self.rates):
            raise BadInput(f"cost model: expected {expected} rates of each target")

    def estimate(self, facts: FloatArray, columns: Sequence[str] = COLUMNS) -> FloatArray:
        """[n, columns] in the targets' own units, NaN where there is no estimate; facts are [n, WORKLOAD_FEATURES]."""
        greatest = np.where(_general(self.amounts)[1:], np.inf, self.greatest)
        work = _work(facts, self.amounts, np.asarray(self.usual), greatest)
        found = np.full((len(facts), len(columns)), np.nan)
        for place, (column, rates) in enumerate(zip(columns, self.rates, strict=True)):
            if rates is not None:
                found[:, place] = _turned(column, work @ np.asarray(rates), facts)
        return found

    @classmethod
    def fit(
        cls, facts: FloatArray, targets: FloatArray, folds: IntArray, columns: Sequence[str] = COLUMNS
    ) -> tuple[CostModel, FloatArray]:
        """Fits the model; also returns the out-of-fold estimate of each training row.

        Args:
            facts: [n, len(WORKLOAD_FEATURES)], not scaled.
            targets: [n, columns] in their own units, NaN where null.
            folds: [n]: rows of a fold are held out together.
            columns: names of the targets.
        """
        varied = [name for name in AMOUNTS if np.nanmax(facts[:, WORKLOAD_FEATURES.index(name)], initial=0.0) > 0]
        usual = np.nanmean(facts[:, [WORKLOAD_FEATURES.index(name) for name in varied]], axis=0)
        work = _work(facts, varied, usual)
        special = _special(varied)
        seconds = np.stack([_turned(name, own, facts) for name, own in zip(columns, targets.T, strict=True)], axis=1)
        seconds[np.isinf(seconds)] = np.nan  # bytes divided by nearly 0
        lawful = [place for place, own in enumerate(seconds.T) if (own > 0).sum() >= _FEWEST]
        rates: list[tuple[float, ...] | None] = [None] * len(columns)
        held = np.full(targets.shape, np.nan)
        if lawful:
            solved, said = _fit_all(work, seconds[:, lawful], folds, special)
            for number, place in enumerate(lawful):
                rates[place] = tuple(map(float, solved[number]))
                held[:, place] = _turned(columns[place], said[:, number], facts)
        greatest = work.max(axis=0, initial=0.0)[1 : len(varied) + 1]
        return cls(tuple(varied), tuple(map(float, usual)), tuple(map(float, greatest)), tuple(rates)), held


def _turned(column: str, values: FloatArray, facts: FloatArray) -> FloatArray:
    """Levels to busy seconds of the link in a step, and back; times unchanged; NaN without a cost model."""
    target = TARGET_OF_COLUMN[column]
    if target.kind == DURATION:
        return values
    if target.kind != LEVEL or target.resource is None or target.resource.key not in _CROSSING:
        return np.full(len(values), np.nan)
    crossing = KILOBYTE * np.expm1(facts[:, WORKLOAD_FEATURES.index(_CROSSING[target.resource.key])])
    known = (crossing > 0) & (values > 0)
    return np.where(known, crossing, np.nan) / np.where(known, values, 1.0)


def _work(
    facts: FloatArray, names: Sequence[str], usual: FloatArray, greatest: FloatArray | float = np.inf
) -> FloatArray:
    """1 and the amounts; then 1 and the general amounts, for synchronous and for asynchronous updates."""
    columns = facts[:, [WORKLOAD_FEATURES.index(name) for name in names]]
    counted = np.minimum(np.expm1(np.where(np.isnan(columns), usual, columns)), greatest)
    amounts = np.concatenate([np.ones((len(facts), 1)), counted], axis=1)
    is_async = np.nan_to_num(facts[:, [WORKLOAD_FEATURES.index("is_async")]], nan=0.0)
    general = amounts[:, _general(names)]
    return np.concatenate([amounts, general * (1 - is_async), general * is_async], axis=1)


def _special(names: Sequence[str]) -> FloatArray:
    """Factor of the penalty of each rate."""
    general = _general(names)
    own = np.where(general, 1.0, OF_A_CLASS)
    return np.concatenate([own, np.full(2 * int(general.sum()), OF_A_MODE)])


def _general(names: Sequence[str]) -> BoolArray:
    """Whether the constant and each amount belong to the whole graph."""
    return np.array([True, *(name in GENERAL for name in names)])


def _fit_all(
    work: FloatArray, values: FloatArray, folds: IntArray, special: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The rates [T, C] of T targets with the penalty of the least out-of-fold error, and out-of-fold estimates [n, T].

    `work` is [n, C], `values` [n, T] with NaN where null, `folds` [n], `special` [C].
    """
    known = ~np.isnan(values)
    units = np.array([np.median(own[own > 0]) for own in values.T])
    values = values / units  # keeps squares within the range of floats
    sizes = np.where(known, np.maximum(values, _SMALL), np.inf)
    scale = work.max(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = work / scale
    relative = scaled / sizes.T[:, :, None]  # [T, n, C]; null rows are 0
    wanted = np.where(known, values, 0.0).T / sizes.T
    penalties = np.multiply.outer(PENALTIES, special)[:, None]  # [penalties, 1, C]
    weights = np.broadcast_to(known.T, (len(PENALTIES), *known.T.shape)).astype(np.float64)
    free = None
    for _ in range(TURNS):
        rates = _solved(_sums(relative, wanted, weights), penalties, free)
        free = rates > 0
        errors = np.abs((relative @ rates[..., None])[..., 0] - wanted)
        weights = known.T / np.maximum(errors, _EXACT)
        weights *= known.sum(axis=0)[:, None] / weights.sum(axis=2, keepdims=True)
    held = np.full((len(PENALTIES), *values.shape), np.nan)
    # Weights are those of all rows, which flatters out-of-fold errors. With whole families left out of everything,
    # weights fitted without each fold gave no better models.
    for fold in np.unique(folds):
        out = folds == fold
        others = _sums(relative[:, ~out], wanted[:, ~out], weights[:, :, ~out])
        without = _solved(others, penalties, free)
        for target, rest in enumerate((known & ~out[:, None]).T):
            if rest.any():
                seen = np.where(special == OF_A_CLASS, scaled[rest].max(axis=0), np.inf)
                held[:, out, target] = without[:, target] @ np.minimum(scaled[out], seen).T
    said = known & ~np.isnan(held)
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.log((held + _SMALL) / (values + _SMALL)))
    errors = np.where(said, apart, 0.0).sum(axis=1) / np.maximum(said.sum(axis=1), 1)
    best = np.where(said.any(axis=1), errors, np.inf).argmin(axis=0)
    chosen = best, np.arange(len(best))
    return rates[chosen] * units[:, None] / scale, held.transpose(0, 2, 1)[chosen].T * units


class _Sums(NamedTuple):
    """Sufficient statistics of least squares over some rows."""

    products: FloatArray
    """[penalties, T, C, C]"""
    sides: FloatArray
    """[penalties, T, C]"""
    amounts: FloatArray
    """[T, C]"""
    rows: IntArray
    """[T]"""


def _sums(relative: FloatArray, wanted: FloatArray, weights: FloatArray) -> _Sums:
    """From rows [T, n, C], their wanted sums [T, n] and their weights [penalties, T, n]."""
    turned = relative.swapaxes(1, 2)
    products = np.stack([(turned * own[:, None, :]) @ relative for own in weights])
    sides = (turned @ (weights * wanted)[..., None])[..., 0]
    return _Sums(products, sides, relative.sum(axis=1), (weights[0] > 0).sum(axis=1))


def _solved(sums: _Sums, penalties: FloatArray, free: BoolArray | None) -> FloatArray:
    """Rates [penalties, T, C] of the least weighted squared relative errors; `free` guesses which are not 0."""
    against = penalties * sums.amounts / np.sqrt(np.maximum(sums.rows, 1))[:, None]
    products = sums.products.copy()
    np.einsum("...ii->...i", products)[...] += against**2
    count = products.shape[-1]
    flat = (-1, count)
    guess = None if free is None else free.reshape(flat)
    return nonnegative(products.reshape(-1, count, count), sums.sides.reshape(flat), guess).reshape(sums.sides.shape)
