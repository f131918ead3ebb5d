"""Strategies by name, framework and library. A new one: a file here, a line, and an entry in contracts/strategy.py."""

from __future__ import annotations

from driple.contracts.errors import UnknownName
from driple.contracts.run_spec import Workload
from driple.contracts.strategy import BACKENDS
from driple.workloads.strategies.allreduce import AllReduce
from driple.workloads.strategies.base import TrainingStrategy
from driple.workloads.strategies.horovod_strategies import HorovodTensorFlow, HorovodTorch
from driple.workloads.strategies.ps import ParameterServers
from driple.workloads.strategies.torch_strategies import PairAveraging, TorchAllReduce

STRATEGIES: dict[tuple[str, str, str], TrainingStrategy] = {
    (strategy.name, strategy.framework, strategy.library): strategy
    for strategy in (
        *(ParameterServers(), AllReduce(), TorchAllReduce(), PairAveraging()),
        *(HorovodTensorFlow(), HorovodTorch()),
    )
}


def strategy_of(workload: Workload) -> TrainingStrategy:
    """The strategy of a workload, in the workload's framework, by the library of its backend."""
    found = STRATEGIES.get((workload.strategy, workload.framework, BACKENDS[workload.backend].library))
    if found is None:
        known = tuple(name for name, framework, _ in STRATEGIES if framework == workload.framework)
        raise UnknownName(f"strategy for {workload.framework}", workload.strategy, known)
    return found
