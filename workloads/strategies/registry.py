"""Strategies by name and framework. A new one is a file here, a line below, and an entry in contracts/strategy.py."""

from __future__ import annotations

from driple.contracts.errors import UnknownName
from driple.contracts.run_spec import Workload
from driple.workloads.strategies.allreduce import AllReduce
from driple.workloads.strategies.base import TrainingStrategy
from driple.workloads.strategies.ps import ParameterServers
from driple.workloads.strategies.torch_strategies import PairAveraging, TorchAllReduce

STRATEGIES: dict[tuple[str, str], TrainingStrategy] = {
    (strategy.name, strategy.framework): strategy
    for strategy in (ParameterServers(), AllReduce(), TorchAllReduce(), PairAveraging())
}


def strategy_of(workload: Workload) -> TrainingStrategy:
    """The strategy of a workload, in the workload's framework."""
    found = STRATEGIES.get((workload.strategy, workload.framework))
    if found is None:
        known = tuple(name for name, framework in STRATEGIES if framework == workload.framework)
        raise UnknownName(f"strategy for {workload.framework}", workload.strategy, known)
    return found
