from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.manifest import FAILED, SEALED, Manifest
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.planning.plan import PlannedRun, plan
from driple.orchestrator.planning.resume import sealed_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experiments")


def runs_of(folder: Path, content: dict[str, Any]) -> tuple[PlannedRun, ...]:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(content))
    return plan(load_experiment(path))


def some(values: tuple[Any, ...]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


AXES: dict[str, tuple[Any, ...]] = {
    "model": ("resnet20", "resnet56", "vgg16", "alexnet"),
    "batch_size": (1, 8, 32, 100),
    "optimiser": ("sgd", "momentum", "rmsprop", "adam"),
    "update": ("sync", "async"),
    "image_size": (32, 64, 224),
    "width": (0.25, 0.5, 1, 1.5),
}
grids = st.fixed_dictionaries(
    {"model": some(AXES["model"])}, optional={k: some(v) for k, v in AXES.items() if k != "model"}
)
experiments = st.fixed_dictionaries(
    {
        "setting": some(("cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p2w2-100m")),
        "steps": st.integers(1, 100),
        "workloads": st.lists(grids, min_size=1, max_size=2),
    },
    optional={
        "repetitions": st.integers(1, 3),
        "seed": st.integers(0, 100),
        "network": st.fixed_dictionaries(
            {}, optional={"loss": some(("0%", "1%", "2%")), "delay": some(("0ms", "5ms"))}
        ),
    },
)


@given(content=experiments)
def test_same_file_same_plan_and_every_run_once(folder: Path, content: dict[str, Any]) -> None:
    runs = runs_of(folder, content)
    assert runs == runs_of(folder, content)
    ids = [run.id for run in runs]
    assert len(set(ids)) == len(ids)
    assert all(run.id == run.spec.id == RunSpec.from_json(run.spec.to_json()).id for run in runs)


@given(content=experiments, data=st.data())
def test_a_value_more_leaves_the_other_runs(folder: Path, content: dict[str, Any], data: st.DataObject) -> None:
    before = {run.id for run in runs_of(folder, content)}
    grid = content["workloads"][0]
    axis = data.draw(st.sampled_from(sorted(grid)))
    for value in AXES[axis]:
        if value not in grid[axis]:
            grid[axis].insert(data.draw(st.integers(0, len(grid[axis]))), value)
            break
    content["repetitions"] = content.get("repetitions", 1) + 1
    assert before < {run.id for run in runs_of(folder, content)}


@given(content=experiments)
def test_order_of_grids_and_keys_does_not_name_runs(folder: Path, content: dict[str, Any]) -> None:
    ids = {run.id for run in runs_of(folder, content)}
    content["workloads"] = [dict(reversed(grid.items())) for grid in reversed(content["workloads"])]
    assert {run.id for run in runs_of(folder, dict(reversed(content.items())))} == ids


def test_everything_is_measured_once_before_anything_twice(folder: Path) -> None:
    runs = runs_of(
        folder,
        {
            "setting": "cpu-p1w1-1g",
            "steps": 1,
            "repetitions": 2,
            "workloads": [{"model": ["resnet20", "vgg16"]}],
            "seed": 5,
        },
    )
    assert [(run.spec.workload.model, run.spec.repetition, run.spec.seed) for run in runs] == [
        ("resnet20", 0, 5),
        ("vgg16", 0, 5),
        ("resnet20", 1, 6),
        ("vgg16", 1, 6),
    ]


def test_done_is_what_is_sealed(folder: Path, tmp_path: Path) -> None:
    content = {
        "setting": "cpu-p1w1-1g",
        "steps": 1,
        "workloads": [{"model": ["resnet20", "vgg16", "lenet", "alexnet"]}],
    }
    runs = runs_of(folder, content)
    for run, status in zip(runs, (SEALED, FAILED), strict=False):
        paths = RunPaths(tmp_path, "sweep", run.id)
        paths.root.mkdir(parents=True)
        Manifest(run=run.spec, run_id=run.id, status=status).write(paths.manifest)
    RunPaths(tmp_path, "sweep", runs[2].id).root.mkdir()
    assert sealed_runs(tmp_path, "sweep", [run.id for run in runs]) == {runs[0].id}
    assert sealed_runs(tmp_path / "nowhere", "sweep", [runs[0].id]) == frozenset()
