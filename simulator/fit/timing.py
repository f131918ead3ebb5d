"""Fits the timing constants of a host: what makes simulated step times equal to measured ones.

Search on a logarithmic scale around the best constants so far. The first tries move one constant after the other by its
width, up and down; then every try changes two at random, and the width of a change shrinks when tries fail. The error
is the mean of |log(simulated / measured)|, each at most 1. The seed of the simulated noise is the same in every try.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driple.contracts.formats.device import DeviceFile
from driple.simulator.fit.measured_jobs import STEP
from driple.simulator.fit.replay import Replay, step_times
from driple.simulator.host_model import HostModel

TRIES = 80
MOST_ROWS = 48
"""Rows that are replayed in every try."""
CHANGED = 2
"""Constants that change in a try."""
WIDTH, SHRINK, GROW, LEAST_WIDTH = 0.5, 0.95, 1.3, 0.05
"""Standard deviation of a change of the logarithm, as a share of the constant's own, and how it changes."""
WORST = 1.0
_BOTH_WAYS = (1.0, -1.0)


@dataclass(frozen=True)
class Constant:
    """A constant of HostModel that is fitted."""

    start: float
    low: float
    high: float
    width: float
    """First changes of its logarithm, later their standard deviation."""


CONSTANTS: dict[str, Constant] = {
    "cores": Constant(1.8, 0.25, 1e4, 0.1),
    "parallel": Constant(1.1, 1.0, 8.0, 0.2),
    "session_s": Constant(1e-3, 1e-5, 0.1, 0.6),
    "barrier_s": Constant(2e-3, 1e-5, 0.1, 0.6),
    "start_phase": Constant(0.5, 0.05, 1.0, 0.4),
}


def error(replays: Sequence[Replay], device: DeviceFile, host: HostModel) -> float:
    """Mean of |log(simulated / measured step time)|, each at most WORST."""
    measured = np.array([one.job.targets[STEP] for one in replays])
    apart = np.abs(np.log(np.array(step_times(replays, device, host)) / measured))
    return float(np.minimum(apart, WORST).mean())


def search(
    replays: Sequence[Replay],
    device: DeviceFile,
    host: HostModel,
    *,
    constants: Mapping[str, Constant] = CONSTANTS,
    tries: int = TRIES,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[HostModel, float]:
    """The host with the constants of the least error, and that error. `host` has all others, and the start."""
    random = np.random.default_rng(seed)
    best, least, width = host, error(replays, device, host), WIDTH
    for number in range(tries):
        if number < len(constants) * len(_BOTH_WAYS):
            place, way = divmod(number, len(_BOTH_WAYS))
            moves = {list(constants)[place]: _BOTH_WAYS[way]}
        else:
            chosen = random.choice(list(constants), min(CHANGED, len(constants)), replace=False)
            moves = {str(name): float(random.normal(0.0, width / WIDTH)) for name in chosen}
        changes = {}
        for name, move in moves.items():
            one = constants[name]
            changes[name] = min(max(getattr(best, name) * float(np.exp(move * one.width)), one.low), one.high)
        tried = replace(best, **changes)
        found = error(replays, device, tried)
        width = max(width * (GROW if found < least else SHRINK), LEAST_WIDTH)
        if found < least:
            best, least = tried, found
            text = ", ".join(f"{name} {value:.3g}" for name, value in changes.items())
            say(f"try {number + 1} of {tries}: {100 * least:.2f} %, {text}")
    return best, least
