"""Training steps of runs, stored beside their datasets: from the graphs that real jobs wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.training_steps import KEY_COLUMNS, STEPS
from driple.contracts.run_dir import RunPaths
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.step_collection import collect_steps
from driple.pipeline.graph.public import StepKey, read_step, read_steps, step_key
from driple.pipeline.traces.run_index import read_sealed

RUNS = Path(__file__).parents[2] / "data" / "runs"


def keys() -> dict[str, StepKey]:
    """The key of each run that is stored here, by model."""
    runs = [read_sealed(folder).run for folder in sorted(RUNS.iterdir()) if folder.is_dir()]
    return {run.workload.model: step_key(run.workload, run.setting.servers) for run in runs}


def test_a_build_stores_the_steps_that_the_zoo_does_not_have(tmp_path: Path) -> None:
    result = build_dataset(RUNS, output=tmp_path, jobs=1)
    stored = dict(read_steps(tmp_path / STEPS))
    # resnet20 in its ordinary size is one of the stored graphs of the zoo.
    assert set(stored) == {keys()["lenet"], keys()["nmt_small"]}
    assert result.steps == 2
    key = keys()["nmt_small"]
    (folder,) = RUNS.glob("*nmt_small*")
    step = read_step(RunPaths(RUNS, "", folder.name).graph("worker"), loop_length=8)
    found = stored[key]
    assert found.ops == step.ops
    assert found.executions.tolist() == step.executions.tolist()
    assert found.executions.max() == 8
    assert (found.pulls, found.pushes) == (step.pulls, step.pushes)
    assert dict(zip(KEY_COLUMNS, key, strict=True))["framework"] == "tensorflow"


def test_a_second_build_adds_nothing_and_keeps_the_bytes(tmp_path: Path) -> None:
    build_dataset(RUNS, output=tmp_path, jobs=1)
    before = (tmp_path / STEPS).read_bytes()
    assert build_dataset(RUNS, output=tmp_path, jobs=1).steps == 0
    assert (tmp_path / STEPS).read_bytes() == before


def test_a_run_without_its_graph_is_left_out(tmp_path: Path) -> None:
    (folder,) = RUNS.glob("*lenet*")
    assert collect_steps([(tmp_path / "gone", read_sealed(folder).run)], tmp_path) == 0
    assert not (tmp_path / STEPS).exists()


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (folder,) = RUNS.glob("*lenet*")
    (tmp_path / STEPS).parent.mkdir()
    (tmp_path / STEPS).write_text("something else")
    with pytest.raises(BadInput, match="not a file of training steps"):
        collect_steps([(folder, read_sealed(folder).run)], tmp_path)
