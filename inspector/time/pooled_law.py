"""The pooled law: rates of work that all machines share, and four numbers of each site.

    step = k * (amounts . rates) + n_mode * link seconds + o

A site is a setting on a machine, for a framework. k: how slow computing is there (the machine, and tasks that share its
processors). n_sync, n_async: the share of the link's time that computing does not hide. o: seconds of every step. Rates
and numbers are fitted in turns, each by the least relative errors (relative_fit.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.time.relative_fit import fit_rates
from driple.inspector.time.time_table import Site, TimeTable

TURNS = 12
PENALTY = 0.01


class SiteNumbers(NamedTuple):
    """What belongs to a site, and not to its machine or its workloads alone."""

    k: float
    n_sync: float
    n_async: float
    o: float


class Terms(NamedTuple):
    """The parts of predicted step times: each [n] seconds."""

    computing: FloatArray
    link: FloatArray
    other: FloatArray

    @property
    def step(self) -> FloatArray:
        return self.computing + self.link + self.other


@dataclass(frozen=True)
class PooledLaw:
    """Rates of work, and the numbers of sites."""

    rates: tuple[float, ...]
    """Of AMOUNTS, in seconds at k = 1."""
    numbers: Mapping[Site, SiteNumbers]

    def terms(self, table: TimeTable, numbers: Sequence[SiteNumbers]) -> Terms:
        """The parts of the step time of each row, with these numbers."""
        own = np.array(numbers, dtype=np.float64).reshape(-1, len(SiteNumbers._fields))
        share = np.where(table.is_async, own[:, 2], own[:, 1])
        return Terms(own[:, 0] * self.compute_seconds(table), share * table.link, own[:, 3])

    def compute_seconds(self, table: TimeTable) -> FloatArray:
        """[n] seconds of computing at k = 1."""
        found: FloatArray = table.work @ np.array(self.rates)
        return found

    @classmethod
    def fit(cls, table: TimeTable, seconds: FloatArray, sites: Sequence[Site], turns: int = TURNS) -> PooledLaw:
        """Fits rates and numbers to measured step times [n]."""
        names = sorted(set(sites))
        place = np.array([names.index(site) for site in sites])
        own = np.tile([1.0, 1.0, 1.0, 0.0], (len(names), 1))
        of_site = _of_site(table)
        penalties = np.full(table.work.shape[1], PENALTY)
        rates = np.zeros(table.work.shape[1])
        for _ in range(turns):
            rest = (of_site * own[place, 1:]).sum(axis=1)
            rates = fit_rates(table.work * own[place, :1], seconds, penalties, offset=rest, turns=3)
            computing = table.work @ rates
            for number in range(len(names)):
                mine = place == number
                own[number] = fit_numbers(computing[mine], table.take(mine), seconds[mine])
            unit = next((k for k in own[:, 0].tolist() if k > 0), 1.0)  # the first site has k = 1
            rates, own[:, 0] = rates * unit, own[:, 0] / unit
        numbers = {site: SiteNumbers(*map(float, own[number])) for number, site in enumerate(names)}
        return cls(tuple(map(float, rates)), numbers)


def fit_numbers(
    computing: FloatArray,
    table: TimeTable,
    seconds: FloatArray,
    prior: SiteNumbers | None = None,
    strength: float = 0.0,
) -> SiteNumbers:
    """The numbers of a site from its rows.

    Args:
        computing: [n] seconds of computing at k = 1.
        table: its rows.
        seconds: [n] measured step times.
        prior: values near which few rows leave the numbers.
        strength: of the prior.
    """
    columns = np.c_[computing, _of_site(table)]
    start = None if prior is None else np.array(prior)
    return SiteNumbers(*map(float, fit_rates(columns, seconds, np.full(4, strength), prior=start)))


def _of_site(table: TimeTable) -> FloatArray:
    """[n, 3]: seconds of the link of sync and of async steps, and 1."""
    return np.stack([_if(~table.is_async, table.link), _if(table.is_async, table.link), np.ones(len(table))], axis=1)


def _if(chosen: BoolArray, values: FloatArray) -> FloatArray:
    return np.where(chosen, values, 0.0)
