"""Runs on this machine itself: asked for, and where a lab cannot be made."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.manifest import SEALED, Manifest, network_as_specified
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError
from driple.orchestrator.sweep.run_experiment import run

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]

TEXT = """\
setting: {setting}
hosts: {hosts}
workloads: [{{model: lenet, image_size: 32, batch_size: 2, width: 0.125}}]
steps: 20
warmup_steps: 1
threads: 1
{more}
"""


def sweep(folder: Path, setting: str, hosts: str, more: str = "", parallel: int | None = None) -> list[Manifest]:
    (folder / "e.yaml").write_text(TEXT.format(setting=setting, hosts=hosts, more=more))
    result = run(folder / "e.yaml", output=folder / "traces", parallel=parallel)
    assert [str(failed.failure) for failed in result.failed] == []
    assert all(sealed.directory is not None for sealed in result.sealed)
    return [Manifest.read(sealed.directory / "run.json") for sealed in result.sealed if sealed.directory]


def test_local(tmp_path: Path) -> None:
    (manifest,) = sweep(tmp_path, "cpu-p1w1-pcie", "local")
    assert manifest.status == SEALED
    assert {host.kind for host in manifest.hosts.values()} == {"local"} and network_as_specified(manifest)
    assert {task.traffic_source for task in manifest.tasks} == {"flows"}
    (flows,) = (tmp_path / "traces" / "e").glob("*/trace/worker-0.flows.parquet")
    assert max(pq.read_table(flows)["bytes_received"].drop_null().to_pylist()) > 20 * 4 * 1000


def test_without_a_lab_it_is_this_machine_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def impossible(**_: object) -> Lab:
        raise LabUnavailableError("the kernel does not let this user make namespaces")

    monkeypatch.setattr(Lab, "start", impossible)
    with caplog.at_level(logging.WARNING):
        (manifest,) = sweep(tmp_path, "cpu-p1w1-1g", "lab")
    assert "NO LAB" in caplog.text and "namespaces" in caplog.text
    assert manifest.status == SEALED
    assert "namespaces" in str(manifest.network_not_as_asked) and not network_as_specified(manifest)
    # A later sweep on a lab must not count it as done.
    assert list((tmp_path / "traces" / "e-without-lab").glob("cpu-*/run.json"))
    assert {host.kind for host in manifest.hosts.values()} == {"local"} and len(manifest.hosts) == 2
    assert {task.traffic_source for task in manifest.tasks} == {"flows"}


def test_a_lab_has_one_condition_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="parallel"):
        sweep(tmp_path, "cpu-p1w1-1g", "lab", "network: {loss: [0%, 1%]}", parallel=2)
