"""TimeModel: the step time of a workload on a site, as the weighted geometric mean of a simulation and two laws.

    step = simulated^(3/4) * pooled law^(1/8) * kernel law^(1/8)

Their errors are different, so the mean errs less than each of them (docs/benchmarks/training-time.md). Where nothing
can be simulated, the two laws share equally. A simulated time is scaled to the site by the median of measured to
simulated times there.

A site that was never measured, on a machine that was, takes its numbers from the site there that is most like it. What
tasks do to each other on shared processors follows from their number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.kernel_law import KernelLaw
from driple.inspector.time.pooled_law import PooledLaw, SiteNumbers, fit_numbers
from driple.inspector.time.time_rows import TimeRow, step_times, table_of
from driple.inspector.time.time_table import Site, TimeTable
from driple.simulator.simulation import MachineSpeed

OF_SIMULATION, OF_POOLED, OF_KERNEL = 0.75, 0.125, 0.125
"""Weights of the logarithms, by errors on families that were left out."""
LEAST_ROWS = 12
"""Of a model."""
FEW_ANCHORS = 5
"""Rows of a site from which all its numbers are fitted; below, only how slow its machine is."""
LEAST_FAMILIES = 2
LEAST_S = 1e-4
OF_PRIOR = 0.3
"""Strength with which a site of few rows is held at the numbers of a like site."""


@dataclass(frozen=True)
class TimeModel:
    """Laws that are fitted to the measured rows of all settings."""

    pooled: PooledLaw
    kernel: KernelLaw
    scales: Mapping[Site, float]
    """Measured to simulated times, the median of each site; 1 where nothing was simulated."""
    speeds: Mapping[str, MachineSpeed]
    """Of machines, beside the machine of the device file."""
    contention: float
    """Exponent with which the number of tasks that compute on shared processors slows each of them down."""

    @classmethod
    def fit(
        cls,
        rows: Sequence[TimeRow],
        speeds: Mapping[str, MachineSpeed] | None = None,
        like: TimeModel | None = None,
    ) -> TimeModel:
        """Fits all parts.

        Args:
            rows: measured rows, with their simulated step times. Sites with hardly any are left out.
            speeds: of machines, at which these were simulated.
            like: a model whose choices of the kernel law are taken, which is faster.

        Raises:
            BadInput: there are too few rows or families.
        """
        count = Counter(row.site for row in rows)
        rows = [row for row in rows if count[row.site] >= FEW_ANCHORS]
        families = [row.family for row in rows]
        if len(rows) < LEAST_ROWS or len(set(families)) < LEAST_FAMILIES:
            raise BadInput(
                f"{len(rows)} workloads of {len(set(families))} families are too few for a time model: measure"
                f" {LEAST_ROWS} or more of {LEAST_FAMILIES} or more families"
            )
        table, seconds, sites = table_of(rows), step_times(rows), [row.site for row in rows]
        pooled = PooledLaw.fit(table, seconds, sites)
        terms = pooled.terms(table, [pooled.numbers[site] for site in sites])
        kernel = KernelLaw.fit(table, terms, seconds, families, None if like is None else like.kernel)
        return cls(pooled, kernel, _scales(rows), dict(speeds or {}), _contention(pooled.numbers))

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self.pooled.numbers)

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(machine for _, machine, _ in self.sites))

    def predict(self, rows: Sequence[TimeRow]) -> FloatArray:
        """[n] seconds. The measured step times of the rows are not used.

        Raises:
            BadInput: no site of their machine was measured.
        """
        if not rows:
            return np.zeros(0)
        simulated = np.array([row.simulated_s or math.nan for row in rows])
        return self.predict_table(table_of(rows), [row.site for row in rows], simulated)

    def predict_table(self, table: TimeTable, sites: Sequence[Site], simulated: FloatArray) -> FloatArray:
        """[n] seconds, from simulated step times [n], NaN where there is none. Raises BadInput as `predict`."""
        found = [self.numbers_of(site) for site in sites]
        terms = self.pooled.terms(table, [numbers for numbers, _ in found])
        law = np.log(np.maximum(terms.step, LEAST_S))
        kernel = np.log(np.maximum(self.kernel.predict(table, terms), LEAST_S))
        laws = (OF_POOLED * law + OF_KERNEL * kernel) / (OF_POOLED + OF_KERNEL)
        scaled = np.log(np.maximum(simulated * np.array([scale for _, scale in found]), LEAST_S))
        known = np.isfinite(simulated)
        blended = np.where(known, OF_SIMULATION * np.nan_to_num(scaled) + (1 - OF_SIMULATION) * laws, laws)
        return np.asarray(np.exp(blended), dtype=np.float64)

    def numbers_of(self, site: Site) -> tuple[SiteNumbers, float]:
        """The numbers of a site and its scale of simulated times; of one that was not measured, from the most like one.

        Raises:
            BadInput: no site of that machine was measured.
        """
        if site in self.pooled.numbers:
            return self.pooled.numbers[site], self.scales[site]
        like = self.most_like(site)
        numbers = self.pooled.numbers[like]
        loads = [_load(Setting.parse(one[0])) for one in (site, like)]
        return numbers._replace(k=numbers.k * (loads[0] / loads[1]) ** self.contention), self.scales[like]

    def most_like(self, site: Site) -> Site:
        """The measured site of the same machine with the most like setting. Raises BadInput if there is none."""
        setting, machine, framework = Setting.parse(site[0]), site[1], site[2]
        known = [one for one in self.sites if one[1] == machine]
        if not known:
            raise BadInput(f"no measured run on machine {machine}; run one there and name its dataset with --anchors")

        def apart(one: Site) -> tuple[float, ...]:
            other = Setting.parse(one[0])
            rates = [math.log(each.link_mbit or 1e6) for each in (setting, other)]
            return (
                float((setting.servers > 0) != (other.servers > 0)),
                float(framework != one[2]),
                abs(math.log(_load(setting) / _load(other))),
                abs(setting.servers - other.servers),
                abs(rates[0] - rates[1]),
            )

        return min(known, key=apart)

    def with_anchors(self, rows: Sequence[TimeRow], speeds: Mapping[str, MachineSpeed] | None = None) -> TimeModel:
        """The model with what a few runs tell of their sites: the machine from one run, the setting from five or more.

        Rates of work stay. A site of a new machine takes its numbers from the most like site of any machine.

        Args:
            rows: the runs.
            speeds: of new machines, at which their rows were simulated.
        """
        numbers, scales = dict(self.pooled.numbers), dict(self.scales)
        by_site: dict[Site, list[TimeRow]] = {}
        for row in rows:
            by_site.setdefault(row.site, []).append(row)
        for site, own in by_site.items():
            model = replace(self, pooled=replace(self.pooled, numbers=numbers), scales=scales)
            prior, scale = model.numbers_of(site) if site[1] in model.machines else model._of_any_machine(site)
            table, seconds = table_of(own), step_times(own)
            computing = self.pooled.compute_seconds(table)
            terms = self.pooled.terms(table, [prior] * len(own))
            left = np.maximum(seconds - terms.link - terms.other, 0.1 * seconds)
            speed = float(np.median(left / np.maximum(terms.computing, LEAST_S)))
            prior = prior._replace(k=prior.k * speed)
            if len(own) >= FEW_ANCHORS:
                prior = fit_numbers(computing, table, seconds, prior, OF_PRIOR)
            numbers[site] = prior
            known = [row.step_s / row.simulated_s for row in own if row.simulated_s]
            scales[site] = float(np.median(known)) if known else scale
        known_speeds = {**self.speeds, **(speeds or {})}
        return replace(self, pooled=replace(self.pooled, numbers=numbers), scales=scales, speeds=known_speeds)

    def _of_any_machine(self, site: Site) -> tuple[SiteNumbers, float]:
        """The numbers of the most like site of any machine: where to start from for a new one."""
        found = [self.most_like((site[0], machine, site[2])) for machine in self.machines]
        exact = [one for one in found if one[0] == site[0]]
        numbers = [self.numbers_of((site[0], one[1], site[2])) for one in exact or found]
        means = np.exp(np.mean([np.log(np.maximum(each, 1e-9)) for each, _ in numbers], axis=0))
        return SiteNumbers(*map(float, means)), float(np.median([scale for _, scale in numbers]))


def _load(setting: Setting) -> float:
    """Tasks that compute at a time: the workers, and servers as half of one, which mostly wait."""
    return setting.workers + 0.5 * setting.servers


def _contention(numbers: Mapping[Site, SiteNumbers]) -> float:
    """The exponent of the load that explains how k differs between sites of a machine and framework; 0 to 1.5."""
    by_machine: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (setting, machine, framework), own in numbers.items():
        if own.k > 0:
            point = math.log(_load(Setting.parse(setting))), math.log(own.k)
            by_machine.setdefault((machine, framework), []).append(point)
    loads, slowness = [], []
    for points in by_machine.values():
        centre = np.mean(points, axis=0)
        loads += [load - centre[0] for load, _ in points]
        slowness += [k - centre[1] for _, k in points]
    square = float(np.square(loads).sum())
    return float(np.clip(np.dot(loads, slowness) / square, 0.0, 1.5)) if square > 1e-6 else 0.0


def _scales(rows: Sequence[TimeRow]) -> dict[Site, float]:
    found: dict[Site, list[float]] = {row.site: [] for row in rows}
    for row in rows:
        if row.simulated_s:
            found[row.site].append(row.step_s / row.simulated_s)
    return {site: float(np.median(ratios)) if ratios else 1.0 for site, ratios in found.items()}
