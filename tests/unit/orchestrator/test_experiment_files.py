"""Every file that we ship loads and plans."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from driple.contracts.run_spec import NetworkCondition, Workload
from driple.contracts.setting import PUBLISHED, Published
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, STRATEGIES
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
    assert len(FILES) == 29
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


@pytest.mark.parametrize("name", ["lab-p1w2-5g", "lab-p1w3-1g", "lab-p1w1-300m", "lab-p0w2-1g"])
def test_the_experiments_of_small_workloads_are_broad(name: str) -> None:
    workloads = load_experiment(BY_NAME[name]).workloads
    assert len(set(workloads)) == len(workloads) >= 160
    assert len({workload.model for workload in workloads}) >= 30
    assert sum(workload.width < 0.5 for workload in workloads) >= 50


def test_every_named_list_is_sound(tmp_path: Path) -> None:
    root = open_document(EXPERIMENTS / "workloads.yaml", "workloads.yaml", Faults())
    assert root is not None
    names = list(root.entries())
    assert len(names) == 11
    for name in names:
        path = tmp_path / "one.yaml"
        path.write_text(
            f"setting: cpu-p1w1-1g\nsteps: 1\n"
            f"workload_lists: {EXPERIMENTS}/workloads.yaml\nworkloads: [{{use: {name}}}]\n"
        )
        assert load_experiment(path).workloads


def _cells(name: str) -> list[tuple[Workload, NetworkCondition]]:
    runs = plan(load_experiment(BY_NAME[name]))
    assert len({run.id for run in runs}) == len(runs)
    return [(run.spec.workload, run.spec.network) for run in runs]


def test_the_traffic_study_is_the_whole_matrix() -> None:
    cells = _cells("dml-traffic")
    kinds = Counter((workload.framework, workload.backend, workload.strategy) for workload, _ in cells)
    assert kinds == {
        ("tensorflow", "grpc", "allreduce"): 84,
        ("torch", "gloo", "allreduce"): 12 + 16,
        ("torch", "mpi", "allreduce"): 12,
        ("torch", "gloo", "pair_averaging"): 4,
    }
    assert len(cells) == 124 + 4
    for name, workers in (("tensorflow", 84), ("torch", 44)):
        found = [cell for cell in cells if cell[0].framework == name]
        assert Counter(workload.model for workload, _ in found) == dict.fromkeys(
            ("mobilenetv2", "densenet201", "resnet50", "resnet101"), workers // 4
        )
    rings = [cell for cell in cells if cell[0].topology == "ring" and cell[0].strategy == "allreduce"]
    assert {workload.batch_size for workload, _ in rings} == {64, 128, 512}
    assert {network.loss_pct for _, network in rings} == {0, 0.05, 0.1, 0.2, 0.5, 1, 2}
    assert {network.congestion for _, network in rings if network.loss_pct} == {"cubic"}
    trees = [workload.topology for workload, _ in cells if workload.topology != "ring"]
    assert Counter(trees) == dict.fromkeys(("binary_tree_star", "clique", "star", "tree"), 4)
    assert {(workload.dataset, workload.optimiser) for workload, _ in cells} == {("cifar10", "adam")}


def test_the_traffic_study_of_the_lab_has_every_kind() -> None:
    experiment = load_experiment(BY_NAME["lab-traffic"])
    assert experiment.measurement.capture == "headers"
    runs = plan(experiment)
    assert len(runs) == 63
    assert {len(run.spec.setting.tasks) - run.spec.setting.servers for run in runs} == {4}
    cells = _cells("lab-traffic")
    wanted = {("ps", "tensorflow", "grpc", "ring"), ("pair_averaging", "torch", "gloo", "ring")}
    for framework in FRAMEWORKS.values():
        for backend in (BACKENDS[name] for name in STRATEGIES["allreduce"].frameworks[framework.name]):
            if backend.library or backend.needs_gpu:
                continue
            topologies = [one for one in framework.topologies if one in backend.topologies]
            wanted |= {("allreduce", framework.name, backend.name, one) for one in topologies}
    assert {(one.strategy, one.framework, one.backend, one.topology) for one, _ in cells} == wanted
    conditions = Counter((network.loss_pct, network.congestion) for one, network in cells if network.congestion)
    assert conditions == {
        (loss, control): count
        for loss in (0, 0.05, 0.1, 0.2, 0.5, 1, 2)
        for control, count in (("cubic", 2), ("bbr", 1))
    }
    for model in ("lenet", "resnet20"):
        same = [one for one, _ in cells if one.model == model and one.framework == "tensorflow"]
        assert {one.batch_size for one in same if one.strategy == "allreduce"} == {8, 16, 64}
        assert {one.batch_size for one in same if one.strategy == "ps"} == {16}
