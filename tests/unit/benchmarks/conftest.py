"""Benchmarks are not installed. Appended, so that no module of theirs hides an installed one (benchmarks/build.py)."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

MakeRow = Callable[..., Any]


@pytest.fixture(scope="session")
def make_row() -> MakeRow:
    """Rows of generated architectures, or of a given graph, with a given step time."""
    from dataclasses import replace

    from time_contest.generated_graphs import generated_graph

    from driple.contracts.setting import Setting
    from driple.inspector.data.examples import unmeasured
    from driple.inspector.time.time_rows import TimeRow

    def make(
        setting: str = "cpu-p1w1-1g",
        step_s: float = 1.0,
        *,
        machine: str = "one",
        graph: Any = 0,
        repeats: tuple[float, ...] = (),
        simulated_s: float | None = None,
        split: str = "train",
        traffic: float = 0.0,
        **workload: Any,
    ) -> TimeRow:
        values = {
            **{"model": "resnet20", "family": "resnet", "dataset": "cifar10", "batch_size": 8, "width": 1.0},
            **{"optimiser": "momentum", "update": "sync", "strategy": "ps", "framework": "tensorflow"},
            "image_size": 32,
        }
        found = generated_graph(graph) if isinstance(graph, int) else graph
        example = replace(
            unmeasured(found, {**values, **workload}),
            received_bytes=traffic,
            sent_bytes=traffic,
            busiest_bytes=traffic,
            split_architecture=split,
            split_random=split,
        )
        return TimeRow(
            example=example,
            setting=Setting.parse(setting),
            machine=machine,
            step_s=step_s,
            repeats=repeats or (step_s,),
            simulated_s=simulated_s,
        )

    return make
