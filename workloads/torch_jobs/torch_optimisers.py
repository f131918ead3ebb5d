"""Optimisers of torch by name, with the rates of workloads/runtime/optimisers.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from driple.workloads.runtime.optimisers import MOMENTUM, RATES, known

_MAKERS: dict[str, Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer]] = {
    "sgd": lambda weights, rate: torch.optim.SGD(weights, rate),
    "momentum": lambda weights, rate: torch.optim.SGD(weights, rate, momentum=MOMENTUM),
    "rmsprop": lambda weights, rate: torch.optim.RMSprop(weights, rate, alpha=0.9, eps=1e-7),
    "adam": lambda weights, rate: torch.optim.Adam(weights, rate),
}


def make(name: str, kind: str, weights: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The kind of the dataset sets the rate. Raises UnknownName."""
    return _MAKERS[known(name)](weights, RATES[kind][name])
