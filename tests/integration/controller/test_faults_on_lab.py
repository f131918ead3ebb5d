"""What can go wrong on a host in the middle of a run. Each time: the right words, nothing left, and the run is done."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from lab_rig import Rig, attempt_of, half_done, manifest_of

from driple.contracts.errors import HostError, HostLost, HostRefused
from driple.contracts.manifest import FAILED, SEALED, Manifest
from driple.orchestrator.attempt.task_command import ForkServer
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts import agent_client
from driple.orchestrator.hosts.ssh import SshHost
from driple.orchestrator.sweep.scheduler import Sweep

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]

LONG = "duration: 4s"
"""Whatever the machine's speed: long enough that a fault falls into it."""


def check_recovered(rig: Rig, folder: Path, attempts: int = 2) -> None:
    manifest = manifest_of(folder)
    assert manifest.status == SEALED and manifest.attempt == attempts
    assert not half_done(folder)
    assert rig.left() == []


@pytest.mark.parametrize("task", ["worker:1", "ps:0"])
def test_a_task_is_killed(rig: Rig, tmp_path: Path, task: str) -> None:
    def kill(sweep: Sweep) -> None:
        state = attempt_of(sweep).states[task]
        rig.on(state.client.name, f"kill -9 {state.pid}")

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=kill)
    assert result.status == "sealed" and len(seen.failures) == 1
    words = str(seen.failures[0])
    assert task in words and "SIGKILL" in words
    check_recovered(rig, tmp_path)


def test_a_sampler_is_killed(rig: Rig, tmp_path: Path) -> None:
    def kill(sweep: Sweep) -> None:
        state = attempt_of(sweep).states["worker:0"]
        rig.on(state.client.name, f"kill -9 {state.sampler_pid}")

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=kill)
    assert result.status == "sealed"
    assert "the sampler of worker:0 on lab2 was killed by SIGKILL" in str(seen.failures[0])
    check_recovered(rig, tmp_path)


def test_an_sshd_session_is_killed(rig: Rig, tmp_path: Path) -> None:
    def kill(sweep: Sweep) -> None:
        killer = attempt_of(sweep).clients["lab3"].host.start(["sh", "-c", "kill -9 $PPID"])
        with suppress(HostError):
            killer.receive(10.0)  # let go of too soon, it would end before it has killed

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=kill)
    assert result.status == "sealed"
    assert isinstance(seen.failures[0], HostLost) and "lab3" in str(seen.failures[0])
    assert result.attempts == 2
    check_recovered(rig, tmp_path)


def test_an_agent_dies_while_the_fork_servers_load(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork servers of the other hosts get ready while no attempt listens; the next attempt must use them."""
    rig.close()
    begin, begun = ForkServer.begin, list[ForkServer]()

    def begin_and_kill(server: ForkServer) -> None:
        begin(server)
        begun.append(server)
        if len(begun) == len(rig.lab.names):
            with suppress(HostError):
                server._client.host.start(["sh", "-c", "kill -9 $PPID"]).receive(10.0)

    monkeypatch.setattr(ForkServer, "begin", begin_and_kill)
    (result,), seen = rig.sweep(tmp_path)
    assert result.status == "sealed" and len(begun) == len(rig.lab.names) + 1
    assert len(seen.failures) == 1 and isinstance(seen.failures[0], HostLost)
    check_recovered(rig, tmp_path)


def test_a_whole_host_dies(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "SILENT_S", 4.0)
    (result,), seen = rig.sweep(tmp_path, length=LONG, during=lambda sweep: rig.lab.kill_host("lab1"))
    assert result.status == "sealed"
    assert isinstance(seen.failures[0], HostLost) and "lab1" in str(seen.failures[0])
    check_recovered(rig, tmp_path)


def test_the_data_link_is_cut_for_a_moment(rig: Rig, tmp_path: Path) -> None:
    def cut(sweep: Sweep) -> None:
        rig.lab.set_link("lab2", False)
        time.sleep(1.5)
        rig.lab.set_link("lab2", True)

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=cut)
    assert result.status == "sealed" and seen.failures == []
    check_recovered(rig, tmp_path, attempts=1)


def test_a_host_is_cut_off_and_comes_back(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreachable is not dead: its tasks go on until its agent hears no more, and are gone when it is back."""
    monkeypatch.setattr(agent_client, "SILENT_S", 4.0)

    def cut(sweep: Sweep) -> None:
        rig.lab.set_link("lab3", False, "mgmt")

    def restore() -> None:
        rig.lab.set_link("lab3", True, "mgmt")

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=cut, after_failure=restore)
    assert result.status == "sealed"
    assert isinstance(seen.failures[0], HostLost) and "lab3" in str(seen.failures[0])
    check_recovered(rig, tmp_path)


def test_a_disk_fills_up(rig: Rig, tmp_path: Path) -> None:
    def fill(sweep: Sweep) -> None:
        rig.on("lab2", 'cat /dev/zero > "$HOME/fill" 2>/dev/null; true')

    def clear() -> None:
        rig.on("lab2", 'rm -f "$HOME/fill"')

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=fill, after_failure=clear)
    assert result.status == "sealed"
    assert "No space left" in str(seen.failures[0]) or "disk" in str(seen.failures[0])
    assert "lab2" in str(seen.failures[0])
    check_recovered(rig, tmp_path)


def test_a_task_hangs(rig: Rig, tmp_path: Path) -> None:
    def freeze(sweep: Sweep) -> None:
        state = attempt_of(sweep).states["worker:1"]
        rig.on(state.client.name, f"kill -STOP {state.pid}")

    (result,), seen = rig.sweep(tmp_path, length=LONG, during=freeze, step="4s")
    assert result.status == "sealed" and len(seen.failures) == 1
    check_recovered(rig, tmp_path)


STUBBORN = """\
import signal, sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdout.buffer.write(b"\\xff\\x00{garbage\\n" * 50_000)
sys.stdout.flush()


def build(images):
    import tensorflow as tf
    import tf_keras

    return tf_keras.layers.Dense(10)(tf.reduce_mean(images, axis=(1, 2)))
"""
OWN = "{model: 'stubborn.py:build', dataset: cifar10, batch_size: 4}"


def test_garbage_on_stdout_and_a_model_that_ignores_sigterm(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    results, seen = rig.sweep(tmp_path, workload=OWN, length="duration: 60s", during=lambda sweep: sweep.stop())
    assert seen.failures == []
    assert [result.status for result in results] == ["not done"]
    assert rig.left() == [] and not half_done(tmp_path)
    assert not list((tmp_path / "traces" / "faults").glob("cpu-*"))
    (again,), seen = rig.sweep(tmp_path, workload=OWN, length="duration: 4s")
    assert again.status == "sealed" and seen.failures == []
    check_recovered(rig, tmp_path, attempts=1)
    (log,) = (tmp_path / "traces" / "faults").glob("*/logs/worker-0.log")
    assert b"{garbage" in log.read_bytes()


def test_a_run_that_cannot_work_is_given_up_and_others_go_on(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build(images):\n    raise ValueError('no such layer')\n")
    workload = (
        "{model: 'broken.py:build', dataset: cifar10, batch_size: 4}\n  - {model: lenet, image_size: 32, batch_size: 2}"
    )
    results, seen = rig.sweep(tmp_path, workload=workload, length="steps: 30")
    assert [result.status for result in results] == ["failed", "sealed"]
    # Bad input stays bad: it is not tried again.
    assert len(seen.failures) == 1 and "no such layer" in str(seen.failures[0])
    (path,) = (tmp_path / "traces" / "faults").glob("*broken*/run.json")
    assert (path.parent / "logs" / "worker-0.log").read_text().count("no such layer") >= 1
    assert Manifest.read(path).status == FAILED
    assert rig.left() == []


def test_a_wrong_host_key_or_login(rig: Rig, tmp_path: Path) -> None:
    """Waiting does not help: the run is given up at once, with the cause, and nothing was started."""
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)

    def connect(spec: HostSpec, wrong: str) -> SshHost:
        if spec.name == "lab1" and wrong == "login":
            spec = replace(spec, identity_file=str(other))
        key = rig.lab.host_key("lab2" if spec.name == "lab1" and wrong == "key" else spec.name)
        return SshHost(spec, connect=lambda: rig.lab.connect(spec.name), host_key=key)

    for wrong in ("key", "login"):
        rig.close()
        (result,), seen = rig.sweep(tmp_path, connect=partial(connect, wrong=wrong))
        assert result.status == "failed"
        assert isinstance(seen.failures[0], HostRefused) and "lab1" in str(seen.failures[0])
        assert "lab1" in str(result.failure)
        assert not half_done(tmp_path)
    rig.close()
    assert rig.left() == []
    (again,), _ = rig.sweep(tmp_path, length="steps: 30")
    assert again.status == "sealed"
