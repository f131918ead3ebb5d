"""The pooled law: rates of work that all machines share, and four numbers of each site.

    step = k * (amounts . rates) + n_mode * link seconds + o

A site is a setting on a machine. k: how slow computing is there (the machine, and tasks that share its processors).
n_sync, n_async: the share of the link's time that computing does not hide. o: seconds of every step. Rates and numbers
are fitted in turns, each by the least relative errors (relative_fit.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.time.relative_fit import fit_rates

Site = tuple[str, str]
"""A setting and a machine."""
Numbers = tuple[float, float, float, float]
"""k, n_sync, n_async and o of a site."""

TURNS = 12
PENALTY = 0.01
LEAST_LEFT = 0.02
"""Share of a step that is left for computing at least, whatever the numbers of the site say."""


@dataclass(frozen=True)
class PooledLaw:
    """Rates of work, and the numbers of sites."""

    rates: tuple[float, ...]
    numbers: Mapping[Site, Numbers]

    def predict(
        self, work: FloatArray, link: FloatArray, is_async: BoolArray, numbers: Sequence[Numbers]
    ) -> FloatArray:
        """[n] seconds, with the numbers of the site of each row; arguments as of `fit`."""
        own = np.array(numbers).reshape(-1, 4)
        return own[:, 0] * (work @ np.array(self.rates)) + (_of_site(link, is_async) * own[:, 1:]).sum(axis=1)

    def compute_seconds(self, work: FloatArray) -> FloatArray:
        """[n] seconds of computing at k = 1."""
        return work @ np.array(self.rates)

    @classmethod
    def fit(
        cls,
        work: FloatArray,
        link: FloatArray,
        is_async: BoolArray,
        seconds: FloatArray,
        sites: Sequence[Site],
        turns: int = TURNS,
    ) -> PooledLaw:
        """Fits rates and numbers.

        Args:
            work: [n, C] amounts of work.
            link: [n] seconds of the busiest link.
            is_async: [n] update mode.
            seconds: [n] measured step times.
            sites: [n].
            turns: of rates and numbers.
        """
        names = sorted(set(sites))
        place = np.array([names.index(site) for site in sites])
        of_site = _of_site(link, is_async)
        own = np.tile([1.0, 1.0, 1.0, 0.0], (len(names), 1))
        penalties = np.full(work.shape[1], PENALTY)
        rates = np.zeros(work.shape[1])
        for _ in range(turns):
            rest = (of_site * own[place, 1:]).sum(axis=1)
            left = np.maximum(seconds - rest, LEAST_LEFT * seconds)
            # Relative to the whole step: a small part of it need not be exact.
            rates = fit_rates(np.c_[work * own[place, :1], rest], seconds, np.r_[penalties, 0.0], turns=3)[:-1]
            if not (work @ rates).any():
                rates = fit_rates(work * own[place, :1], left, penalties, turns=3)
            computing = work @ rates
            for number in range(len(names)):
                mine = place == number
                own[number] = fit_numbers(computing[mine], link[mine], is_async[mine], seconds[mine])
            unit = own[own[:, 0] > 0, 0]
            if len(unit):  # the first site has k = 1
                rates, own[:, 0] = rates * unit[0], own[:, 0] / unit[0]
        return cls(
            tuple(map(float, rates)),
            {site: _numbers(own[number]) for number, site in enumerate(names)},
        )


def fit_numbers(
    computing: FloatArray,
    link: FloatArray,
    is_async: BoolArray,
    seconds: FloatArray,
    prior: Numbers | None = None,
    strength: float = 0.0,
) -> Numbers:
    """The numbers of a site from its rows; with few rows held near a prior."""
    columns = np.c_[computing, _of_site(link, is_async)]
    return _numbers(
        fit_rates(
            columns,
            seconds,
            np.full(4, strength),
            prior=None if prior is None else np.array(prior),
        )
    )


def _of_site(link: FloatArray, is_async: BoolArray) -> FloatArray:
    """[n, 3]: seconds of the link of sync and of async steps, and 1."""
    return np.stack([np.where(is_async, 0.0, link), np.where(is_async, link, 0.0), np.ones(len(link))], axis=1)


def _numbers(values: FloatArray) -> Numbers:
    k, n_sync, n_async, o = map(float, values)
    return k, n_sync, n_async, o
