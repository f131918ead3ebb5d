"""Optimisers by name, with learning rates at which small models of a family learn the synthetic data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driple.contracts.errors import UnknownName
from driple.contracts.zoo import IMAGE, OPTIMISERS, RATING, SEQUENCE

RATES: dict[str, dict[str, float]] = {
    IMAGE: {"sgd": 0.02, "momentum": 0.005, "rmsprop": 0.002, "adam": 0.001},
    SEQUENCE: {"sgd": 2.0, "momentum": 0.3, "rmsprop": 0.002, "adam": 0.001},
    RATING: {"sgd": 1.0, "momentum": 0.3, "rmsprop": 0.02, "adam": 0.005},
}
"""Learning rates by kind of dataset. Networks without batch normalisation (AlexNet, VGG) limit the rate for images;
embeddings need higher rates because a batch touches few of their rows. TF1's rmsprop starts slowly: its mean square is
1 at first. The rate does not change the cost of a step."""
MOMENTUM = 0.9


def make(name: str, kind: str = IMAGE) -> Any:
    """A TF1 optimiser, for graphs. The kind of the dataset sets the rate."""
    from tensorflow.compat.v1 import train

    makers: dict[str, Callable[[float], Any]] = {
        "sgd": train.GradientDescentOptimizer,
        "momentum": lambda rate: train.MomentumOptimizer(rate, MOMENTUM),
        "rmsprop": lambda rate: train.RMSPropOptimizer(rate, epsilon=1e-7),
        "adam": train.AdamOptimizer,
    }
    return makers[known(name)](RATES[kind][name])


def make_v2(name: str, kind: str = IMAGE) -> Any:
    """A tf_keras optimiser, for eager loops; arguments as for `make`."""
    from tf_keras import optimizers

    makers: dict[str, Callable[[float], Any]] = {
        "sgd": optimizers.SGD,
        "momentum": lambda rate: optimizers.SGD(rate, momentum=MOMENTUM),
        "rmsprop": optimizers.RMSprop,
        "adam": optimizers.Adam,
    }
    return makers[known(name)](RATES[kind][name])


def known(name: str) -> str:
    """Returns the name if it is known; else raises UnknownName."""
    if name not in OPTIMISERS:
        raise UnknownName("optimiser", name, OPTIMISERS)
    return name
