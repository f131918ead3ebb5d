"""Every file that we ship loads and plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.contracts.setting import PUBLISHED, Published
from driple.contracts.zoo import MODELS
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.config.validation import Faults, open_document
from driple.orchestrator.planning.plan import plan

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
NOT_EXPERIMENTS = {EXPERIMENTS / "workloads.yaml", *EXPERIMENTS.glob("inventories/*.yaml")}
FILES = sorted(set(EXPERIMENTS.rglob("*.yaml")) - NOT_EXPERIMENTS)
BY_NAME = {path.stem: path for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_loads_and_plans(path: Path) -> None:
    experiment = load_experiment(path)
    assert plan(experiment)
    assert experiment.name == path.stem


def test_none_is_forgotten() -> None:
    assert len(FILES) >= 22
    assert not set(EXPERIMENTS.rglob("*.yml"))
    assert not set(EXPERIMENTS.rglob("*.yaml")) - NOT_EXPERIMENTS - set(FILES)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: str(published.setting))
def test_each_published_setting_has_its_file_on_as_many_machines(published: Published) -> None:
    experiment = load_experiment(BY_NAME[str(published.setting)])
    assert experiment.settings == (published.setting,)
    assert len({task.host for task in plan(experiment)[0].tasks}) == published.machines


def test_the_shared_list_covers_the_zoo() -> None:
    models = {workload.model for workload in load_experiment(BY_NAME["v100-p1w2-pcie"]).workloads}
    assert models == set(MODELS)


@pytest.mark.parametrize("name", ["lab-p1w2", "lab-p2w2"])
def test_the_measured_datasets_are_broad(name: str) -> None:
    workloads = load_experiment(BY_NAME[name]).workloads
    assert len(set(workloads)) == len(workloads) >= 160
    assert len({workload.model for workload in workloads}) >= 30
    assert {workload.update for workload in workloads} == {"sync", "async"}
    assert sum(workload.sequence_length is not None for workload in workloads) >= 30


def test_every_named_list_is_sound(tmp_path: Path) -> None:
    root = open_document(EXPERIMENTS / "workloads.yaml", "workloads.yaml", Faults())
    assert root is not None
    names = list(root.entries())
    assert len(names) == 6
    for name in names:
        path = tmp_path / "one.yaml"
        path.write_text(
            f"setting: cpu-p1w1-1g\nsteps: 1\n"
            f"workload_lists: {EXPERIMENTS}/workloads.yaml\nworkloads: [{{use: {name}}}]\n"
        )
        assert load_experiment(path).workloads


def test_the_traffic_study_is_the_whole_matrix() -> None:
    runs = plan(load_experiment(BY_NAME["dml-traffic"]))
    cells = {(run.spec.workload.model, run.spec.workload.batch_size, run.spec.network.loss_pct) for run in runs}
    losses = {loss for _, _, loss in cells}
    assert {model for model, _, _ in cells} == {"mobilenetv2", "densenet201", "resnet50", "resnet101"}
    assert {batch for _, batch, _ in cells} == {64, 128, 512}
    assert (min(losses), max(losses)) == (0.0, 2.0)
    assert len(cells) == 4 * 3 * len(losses)
