"""A host backend is one class and one line of the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from driple.contracts.errors import FileFaults
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.data_network import Shaper
from driple.orchestrator.config.experiment import Experiment, load_experiment
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.local import LocalHost
from driple.orchestrator.hosts.registry import BACKENDS, Backend, Cluster, backend
from driple.orchestrator.planning.plan import plan


class BatchSystem(Backend):
    """A backend as for Slurm: it creates as many nodes as a setting has tasks."""

    def hosts_for(self, setting: Setting) -> tuple[HostSpec, ...]:
        return tuple(HostSpec(name=f"node{i}", address=f"node{i}") for i in range(len(setting.tasks)))

    @contextmanager
    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> Iterator[Cluster]:
        specs = {spec.name: spec for spec in self.hosts_for(experiment.settings[0])}
        yield Cluster("batch", specs, lambda spec: LocalHost(spec.name), Shaper(), None)


def experiment_file(folder: Path, hosts: str) -> Path:
    path = folder / "e.yaml"
    path.write_text(f"setting: cpu-p1w1-1g\nhosts: {hosts}\nsteps: 1\nworkloads: [{{model: ncf}}]\n")
    return path


def test_a_new_backend_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "batch", f"{__name__}:BatchSystem")
    experiment = load_experiment(experiment_file(tmp_path, "batch"))
    (run,) = plan(experiment)
    assert [item.host for item in run.tasks] == ["node0", "node1"]
    with backend(experiment.inventory.kind).cluster(experiment, accept_new_host_keys=False) as cluster:
        assert sorted(cluster.specs) == ["node0", "node1"]


def test_an_unknown_backend_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FileFaults, match="expected lab, local.* or an inventory file"):
        load_experiment(experiment_file(tmp_path, "batch"))


@pytest.mark.parametrize("kind", BACKENDS)
def test_every_backend_of_the_table_loads(kind: str) -> None:
    assert isinstance(backend(kind), Backend)
