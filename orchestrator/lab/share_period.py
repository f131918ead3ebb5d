"""The period in which a host has its share of the processors. Pure."""

from __future__ import annotations

import math

USUAL_US = 5000.0
"""Long enough for the kernel's least quota at a small share, and short against the steps of a job."""
LEAST_US = 1000.0
"""The kernel accepts no shorter period and no smaller quota."""


def share_period_us(sampling_hz: float, cores: float) -> int:
    """The period near USUAL_US of which every sample covers whole ones.

    Otherwise the rhythm of the quota shows up in the series of CPU samples: 4 ms in samples of 5 ms make every fourth
    sample twice as high as the others. Where samples are shorter than the least period, a period covers whole samples.
    """
    sample_us = 1e6 / sampling_hz
    least_us: float = max(LEAST_US, LEAST_US / cores)
    fitting: list[float] = [sample_us / count for count in range(1, math.floor(sample_us / least_us) + 1)]
    fitting = fitting or [sample_us * math.ceil(max(least_us, USUAL_US) / sample_us)]
    _, nearest = min((abs(math.log(period / USUAL_US)), period) for period in fitting)
    return round(nearest)
