"""driple-run on hosts of an inventory, through ~/.ssh/config: real SSH, and the failures of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from driple.contracts.manifest import SEALED, Manifest
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]

HOSTS = 4
WORKLOAD = "{model: lenet, batch_size: SIZES, image_size: 32, width: 0.125}"


class Cluster:
    """A lab that stands for a cluster, and a home whose ~/.ssh/config leads there."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab = lab
        self.home = home
        (home / ".ssh").mkdir(mode=0o700)
        (home / ".ssh" / "config").write_text(lab.ssh_config.read_text())

    def inventory(self, folder: Path, names: list[str], **more: Any) -> None:
        """Hosts are named as in the config; what they are on the data network is said here."""
        hosts = {
            name: {"networks": {"1g": {"address": self.lab.data_address(name), "nic": "eth0"}}, **more}
            for name in names
        }
        (folder / "cluster.yaml").write_text(json.dumps({"defaults": {"python": sys.executable}, "hosts": hosts}))

    def run(self, folder: Path, *options: str, sizes: str = "2", extra: str = "") -> tuple[int, dict[str, Any], str]:
        """driple-run on them: exit code, summary and what it said."""
        (folder / "sweep.yaml").write_text(
            "setting: cpu-p1w1-1g\nhosts: cluster.yaml\nplacement: {spread: 2}\nworkloads:\n"
            f"  - {WORKLOAD.replace('SIZES', sizes)}\nsteps: 20\nwarmup_steps: 1\nthreads: 1\nretries: 0\n{extra}"
        )
        done = subprocess.run(
            [sys.executable, "-m", "driple.orchestrator.cli", "sweep.yaml", "--json", *options],
            cwd=folder,
            env={**os.environ, "HOME": str(self.home), "SSH_AUTH_SOCK": ""},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        lab = Lab.start(hosts=HOSTS, rate_mbit=None)  # a qdisc that is there already would be in tc's way
    except LabUnavailableError as error:
        pytest.skip(f"no lab here: {error}")
    with lab:
        yield Cluster(lab, tmp_path_factory.mktemp("home"))


def manifests(folder: Path) -> list[Manifest]:
    return [Manifest.read(path) for path in sorted((folder / "traces" / "sweep").glob("*/run.json"))]


def test_runs_on_disjoint_hosts_go_at_the_same_time(cluster: Cluster, tmp_path: Path) -> None:
    cluster.inventory(tmp_path, list(cluster.lab.names))
    code, summary, said = cluster.run(tmp_path, sizes="[2, 3]")
    assert code == 0, said
    assert summary["counts"]["sealed"] == 2
    first, second = manifests(tmp_path)
    assert {host.kind for host in (*first.hosts.values(), *second.hosts.values())} == {"ssh"}
    assert not first.hosts.keys() & second.hosts.keys()
    assert first.started_real_s is not None and first.ended_real_s is not None
    assert second.started_real_s is not None and second.ended_real_s is not None
    assert first.started_real_s < second.ended_real_s and second.started_real_s < first.ended_real_s
    assert {task.traffic_source for task in first.tasks} == {"nic:eth0"}
    assert first.measured_network["rate_mbit"] > 0


def test_a_host_that_is_down_is_set_aside_and_its_run_goes_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.inventory(tmp_path, ["lab1", "lab2", "lab3"])
    cluster.lab.kill_host("lab1")
    try:
        code, summary, said = cluster.run(tmp_path)
    finally:
        cluster.lab.revive_host("lab1")
    assert code == 0, said
    assert summary["runs"][0]["hosts"] == ["lab2", "lab3"]
    assert "lab1" in said and "set aside" in said


def test_a_login_that_is_refused_is_told_at_once(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    cluster.inventory(tmp_path, ["lab1", "lab2"], identity_file=str(other))
    code, summary, said = cluster.run(tmp_path)
    assert code == 1
    assert summary["counts"]["failed"] == 1
    assert "lab1" in said and "Traceback" not in said
    assert "PRIVATE KEY" not in said


def test_a_python_without_tensorflow_is_told(cluster: Cluster, tmp_path: Path) -> None:
    cluster.inventory(tmp_path, ["lab1", "lab2"], python="/usr/bin/env python-that-is-not-there")
    code, _, said = cluster.run(tmp_path)
    assert code == 1 and "python-that-is-not-there" in said and "Traceback" not in said


FAKE_DOCKER = """\
#!{python}
# Stands in for docker: takes the options apart as docker would, refuses what it does not know, and runs the command.
import os, sys
argv = sys.argv[1:]
with open(os.path.expanduser("~/docker.log"), "a") as log:
    log.write(repr(argv) + "\\n")
if argv[:2] == ["rm", "--force"]:
    sys.exit(0)
assert argv.pop(0) == "run"
flags = {{"--rm", "--interactive", "--init"}}
valued = {{"--name", "--user", "--publish", "--env", "--cpus", "--memory", "--volume", "--gpus"}}
while argv[0].startswith("--"):
    option = argv.pop(0)
    if option in valued:
        value = argv.pop(0)
        if option == "--volume":
            assert os.path.exists(value.split(":")[0]), value
    else:
        assert option in flags, option
assert argv.pop(0) == "driple/workload:test"
os.environ["PATH"] = {bin!r} + os.pathsep + os.environ["PATH"]
os.execvp(argv[0], argv)
"""


def test_tasks_in_containers(cluster: Cluster, tmp_path: Path) -> None:
    """There is no container engine here: what docker is told is taken apart and run by a stand-in."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text(FAKE_DOCKER.format(python=sys.executable, bin=str(Path(sys.executable).parent)))
    (tools / "docker").chmod(0o755)
    for name in ("lab1", "lab2"):
        script = f"mkdir -p ~/bin && ln -sf {tools}/docker ~/bin/docker"
        subprocess.run(["ssh", "-F", str(cluster.lab.ssh_config), name, script], check=True, timeout=30)
    hosts = {
        name: {
            "networks": {"1g": {"address": cluster.lab.data_address(name), "nic": "eth0"}},
            "image": "driple/workload:test",
            "cpus": 1,
            "memory": "2g",
            "docker": "~/bin/docker",
        }
        for name in ("lab1", "lab2")
    }
    (tmp_path / "cluster.yaml").write_text(json.dumps({"hosts": hosts}))
    code, _, said = cluster.run(tmp_path)
    assert code == 0, said
    (manifest,) = manifests(tmp_path)
    assert manifest.status == SEALED and {task.started_by for task in manifest.tasks} == {"container"}
    assert {task.traffic_source for task in manifest.tasks} == {"nic:eth0"}
    (trace,) = (tmp_path / "traces" / "sweep").glob("*/trace/worker-0.parquet")
    assert pq.read_table(trace)["task_cpu_ns"].drop_null().to_pylist()[-1] > 1e8


def test_a_condition_is_made_by_tc_and_taken_off(cluster: Cluster, tmp_path: Path) -> None:
    """On a host where the login may: here it is root of its own network namespace."""
    cluster.inventory(tmp_path, ["lab3", "lab4"])
    code, _, said = cluster.run(tmp_path, extra="network: {rate: 50mbit}\n")
    assert code == 0, said
    (manifest,) = manifests(tmp_path)
    assert manifest.network_done_by["rate"] in ("netem", "tbf")
    assert 0 < manifest.measured_network["rate_mbit"] < 60
    for name in ("lab3", "lab4"):
        shown = subprocess.run(
            ["ssh", "-F", str(cluster.lab.ssh_config), name, "tc qdisc show dev eth0"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        assert "50Mbit" not in shown
