"""Burst metrics for other packages: from a series to its burst and idle durations (docs/guides/metrics.md)."""

from __future__ import annotations

from driple.pipeline.bursts.burst_metrics import FINEST, Bib, measure
from driple.pipeline.traces.series import Series

__all__ = ["FINEST", "Bib", "Series", "measure"]
