"""Narrow layers: a convolution with few channels uses a processor's vector units and caches badly.

    flops that count = flops * (1 + c / input channels) * (1 + c / output channels)

With c channels on one side, a convolution takes twice the time for its arithmetic. Wide layers do not notice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.graph.public import WINDOW, TrainingStep


def narrow_factor(step: TrainingStep, channels: float) -> NDArray[np.float64]:
    """The factor of the FLOPs of each op; 1 for all but convolutions of images."""
    factor: NDArray[np.float64] = np.ones(len(step.ops))
    for side in ("inputs", "outputs"):
        found = step.windows[:, WINDOW.index(side)]
        known = found > 0
        factor[known] *= 1 + channels / found[known]
    return factor
