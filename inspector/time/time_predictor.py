"""TimePredictor: a time model with the errors from which its intervals come, and what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.inspector.data.examples import Example
from driple.inspector.time.step_distribution import StepDistribution
from driple.inspector.time.time_model import TimeModel
from driple.inspector.time.time_rows import TimeRow
from driple.inspector.time.time_table import Site, TimeTable
from driple.simulator.simulation import MachineSpeed

MEASURED_SETTING, NEW_SETTING, ANCHORED = "measured setting", "new setting", "anchored"
"""How much is known of a site: rows of it; rows of another setting on its machine; a few runs there."""
LEAST_ERRORS = 40
"""Of a site, to have intervals of its own."""


@dataclass(frozen=True)
class StepAnswer:
    """The step time of a workload on a site."""

    distribution: StepDistribution
    site: Site
    basis: str
    """MEASURED_SETTING, NEW_SETTING or ANCHORED."""


@dataclass(frozen=True)
class TimePredictor:
    """Predicts step times with their uncertainty."""

    model: TimeModel
    errors: Mapping[Site, tuple[float, ...]]
    """Of families that were left out, by site."""
    setting_errors: tuple[float, ...]
    """Of settings that were left out, on machines that were not."""
    machine_errors: tuple[float, ...]
    """Of machines that were left out, with one anchor run of each setting."""
    rows: Mapping[Site, int]
    """Workloads of each site."""
    anchor: str
    """Label of the workload that tells most of a new machine."""
    anchored: frozenset[Site] = frozenset()
    """Sites of a few runs of the user."""

    def site_of(self, setting: Setting, framework: str, machine: str | None = None) -> Site:
        """The site of a setting: of the machine, or of that on which most rows of the setting were measured.

        Raises:
            BadInput: the setting was not measured, and no machine is given.
        """
        text = str(setting)
        if machine is not None:
            return text, machine, framework
        own = [site for site in self.model.sites if site[0] == text]
        if not own:
            raise BadInput(
                f"step time of {text}: no run of this setting was measured, and its machine is not known; measure"
                f" {self.anchor} there and name its dataset with --anchors, or name a setting of the same machine with"
                f" --machine-of ({', '.join(dict.fromkeys(site[0] for site in self.model.sites))})"
            )
        most = max(own, key=lambda site: (site in self.anchored, site[2] == framework, self.rows.get(site, 0)))
        return text, most[1], framework

    def machine_name(self, machine: str) -> str:
        """A machine by the settings that were measured on it."""
        settings = sorted({site[0] for site in self.model.sites if site[1] == machine})
        return f"the machine of {' and '.join(settings)}" if settings else f"a machine with {machine}"

    def machine_of(self, setting: Setting) -> str:
        """The machine of a measured setting. Raises BadInput if it was not measured."""
        known = {site[0]: site[1] for site in sorted(self.model.sites, key=lambda site: self.rows.get(site, 0))}
        if str(setting) not in known:
            raise BadInput(f"{setting}: no run of it was measured; there are {', '.join(sorted(known))}")
        return known[str(setting)]

    def predict(
        self, example: Example, setting: Setting, simulated_s: float | None, machine: str | None = None
    ) -> StepAnswer:
        """The step time of a workload.

        Args:
            example: the workload and its graph.
            setting: where it runs.
            simulated_s: its simulated step time, if there is one.
            machine: label of the machine; default that of the measured rows of the setting.

        Raises:
            BadInput: the machine is not known, or the graph has no ops.
        """
        site = self.site_of(setting, str(example.workload.get("framework")), machine)
        speed = self.model.speeds.get(site[1], MachineSpeed())
        table = TimeTable.of([example], [setting], np.array([speed.arithmetic]))
        seconds = self.model.predict_table(table, [site], np.array([simulated_s or np.nan]))[0]
        basis, errors = self._errors_of(site)
        return StepAnswer(StepDistribution.of(float(seconds), errors), site, basis)

    def _errors_of(self, site: Site) -> tuple[str, Sequence[float]]:
        if site in self.anchored:
            return ANCHORED, self.machine_errors or self._all
        if site in self.model.pooled.numbers:
            own = self.errors.get(site, ())
            return MEASURED_SETTING, own if len(own) >= LEAST_ERRORS else self._all
        return NEW_SETTING, self.setting_errors or self._all

    @property
    def _all(self) -> tuple[float, ...]:
        return tuple(error for errors in self.errors.values() for error in errors)

    def with_anchors(self, rows: Sequence[TimeRow], speeds: Mapping[str, MachineSpeed]) -> TimePredictor:
        """The predictor with what a few runs of the user tell of their sites; arguments as of the model's."""
        model = self.model.with_anchors(rows, speeds)
        sites = frozenset(row.site for row in rows)
        counts = {**self.rows, **{site: sum(row.site == site for row in rows) for site in sites}}
        return replace(self, model=model, rows=counts, anchored=self.anchored | sites)
