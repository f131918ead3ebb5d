"""Burst metrics of any trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.data_frame import data_frame
from driple.contracts.errors import BadInput
from driple.pipeline.bursts.burst_metrics import Analysis, Bib, analyse
from driple.pipeline.readers.registry import read_source
from driple.pipeline.traces.series import Series

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SeriesMetrics:
    """The metrics of one series."""

    name: str
    unit: str
    bib: Bib
    """Burst duration, idle duration, burst amount and statistics."""
    series: Series
    analysis: Analysis
    """The samples that were used and the spans that were found."""


@dataclass(frozen=True)
class Metrics:
    """The metrics of all series of a trace."""

    path: Path
    read_as: str
    """The kind of input, in words."""
    notes: tuple[str, ...]
    """Notes for people: sampling quality, lines that were left out."""
    series: tuple[SeriesMetrics, ...]
    provenance: str | None = None
    """`measured` or `simulated`; None where the input does not say."""

    def __iter__(self) -> Iterator[SeriesMetrics]:
        return iter(self.series)

    def __getitem__(self, name: str) -> SeriesMetrics:
        return next(one for one in self.series if one.name == name)

    @property
    def analysed(self) -> list[tuple[Series, Analysis]]:
        """Series and analyses, for plots."""
        return [(one.series, one.analysis) for one in self.series]

    def to_json(self) -> dict[str, Any]:
        series = {one.name: {"unit": one.unit, **one.bib.to_json()} for one in self.series}
        about = {"file": str(self.path), "provenance": self.provenance, "read_as": self.read_as}
        return {**about, "notes": list(self.notes), "series": series}

    def to_frame(self) -> pd.DataFrame:
        """A table with a row for each series. Flags are joined by blanks."""
        rows = ({"series": one.name, "unit": one.unit, **one.bib.to_json()} for one in self.series)
        return data_frame({**row, "flags": " ".join(row["flags"]), "provenance": self.provenance} for row in rows)


def metrics(
    path: str | Path,
    *,
    time: str | None = None,
    values: Sequence[str] = (),
    counters: Sequence[str] = (),
    step_s: float | None = None,
) -> Metrics:
    """Burst duration, idle duration and burst amount of all series of a trace.

    Args:
        path: a run directory, a trace of the sampler, an nvidia-smi log, a Chrome trace, a CSV or a Parquet file.
        time: the column of time of a table; found by its name if None.
        values: columns of rates and levels; all numeric columns if neither values nor counters are named.
        counters: columns of counters.
        step_s: the training step if known.

    Raises:
        BadInput: it cannot be read, with the reason.
    """
    if step_s is not None and not step_s > 0:
        raise BadInput(f"--step: expected more than 0, got {step_s:g}")
    source = read_source(Path(path), time, values, counters)
    found = []
    for series in source.series:
        analysis = analyse(series, step_s=step_s or source.steps_s.get(series.name))
        found.append(SeriesMetrics(series.name, series.unit, analysis.bib, series, analysis))
    return Metrics(Path(path), source.what, source.notes, tuple(found), source.provenance)
