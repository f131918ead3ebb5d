"""Driple: predict what a distributed training job does to the machines, before it runs.

The public Python interface. Importing this package is cheap: each name loads its implementation on first use. No
function here prints, installs signal handlers or changes the root logger.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driple.contracts.errors import BadInput, DripleError, RunFailed
    from driple.inspector.data.graph_set import load_graphs
    from driple.inspector.predict.predict_workload import predict
    from driple.inspector.predict.predictor import Inspector
    from driple.inspector.time.train_time import train_time
    from driple.inspector.training.train_setting import train
    from driple.orchestrator.sweep.run_experiment import run
    from driple.pipeline.bursts.trace_metrics import metrics
    from driple.pipeline.datasets.build import build_dataset
    from driple.pipeline.datasets.merge import merge_datasets
    from driple.pipeline.traces.run_index import runs

    __version__: str

_HOME = {
    "BadInput": "driple.contracts.errors",
    "DripleError": "driple.contracts.errors",
    "Inspector": "driple.inspector.predict.predictor",
    "RunFailed": "driple.contracts.errors",
    "build_dataset": "driple.pipeline.datasets.build",
    "load_graphs": "driple.inspector.data.graph_set",
    "merge_datasets": "driple.pipeline.datasets.merge",
    "metrics": "driple.pipeline.bursts.trace_metrics",
    "predict": "driple.inspector.predict.predict_workload",
    "run": "driple.orchestrator.sweep.run_experiment",
    "runs": "driple.pipeline.traces.run_index",
    "train": "driple.inspector.training.train_setting",
    "train_time": "driple.inspector.time.train_time",
}

__all__ = [
    "BadInput",
    "DripleError",
    "Inspector",
    "RunFailed",
    "__version__",
    "build_dataset",
    "load_graphs",
    "merge_datasets",
    "metrics",
    "predict",
    "run",
    "runs",
    "train",
    "train_time",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("driple")
    if name not in _HOME:
        raise AttributeError(f"module 'driple' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
