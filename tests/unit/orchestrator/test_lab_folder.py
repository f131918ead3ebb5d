"""Folders of labs: found while they live, cleared away when they are dead, never anybody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput, RunFailed
from driple.orchestrator.lab import control_messages, tools
from driple.orchestrator.lab import lab_folder as folders
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where labs of these tests are."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_a_folder_is_private_and_lives_as_long_as_its_lock() -> None:
    folder = folders.path_of("mine")
    with folders.made(folder) as lock:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folders.living() == [folder] and folders.name_of(folder) == "mine"
        with pytest.raises(BadInput, match="up already; `driple-lab down --name mine`"), folders.made(folder):
            pass
        # A child that has inherited the lock keeps the lab alive, as a supervisor does.
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    assert folders.living() == [folder]
    child.communicate(b"\n")
    assert folders.living() == [] and not folder.exists()


def test_what_a_dead_lab_left_does_not_hinder_the_next() -> None:
    folder = folders.path_of("mine")
    with folders.made(folder):
        (folder / "lab1").mkdir()
    with folders.made(folder):
        assert list(folder.iterdir()) == []


def test_many_starters_and_sweepers_at_once_never_lose_a_folder_that_is_in_use() -> None:
    faults: list[str] = []

    def start(name: str) -> None:
        for _ in range(30):
            with folders.made(folders.path_of(name)) as lock:
                if not folders.path_of(name).exists() or os.fstat(lock).st_nlink == 0:
                    faults.append(name)

    threads = [threading.Thread(target=start, args=(f"lab-{i}",)) for i in range(4)]
    threads += [threading.Thread(target=lambda: [folders.living() for _ in range(100)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_may_enter_is_not_a_lab(place: Path, mode: int) -> None:
    folder = folders.path_of("open")
    folder.mkdir(mode=mode)
    folder.chmod(mode)
    assert folders.living() == []
    link = folders.path_of("link")
    link.symlink_to(place)
    assert folders.living() == [] and link.is_symlink()


@pytest.mark.parametrize("name", ["", "Lab", "../x", "a b", "-x", "x" * 33])
def test_a_name_that_is_no_name(name: str) -> None:
    with pytest.raises(BadInput, match="name of a lab"):
        folders.path_of(name)


def test_a_runtime_folder_of_somebody_else_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = place / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert folders.places() == [runtime, place]
    runtime.chmod(0o755)
    assert folders.places() == [place]


def test_a_keeper_is_reached_however_long_the_path_is(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    handle = os.open(deep, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(control_messages.path_of(handle, "control"))
        listener.listen()
        os.close(handle)
        with control_messages.call(deep / "control", 5) as line:
            other, _ = listener.accept()
            with other:
                reading, writing = os.pipe()
                control_messages.send(other, {"ok": "x" * 100_000}, [writing])
                answer, descriptors = control_messages.receive(line)
            assert answer == {"ok": "x" * 100_000} and control_messages.other_side(line) == os.getpid()
            os.close(writing)
            os.write(descriptors[0], b"through")
            assert os.read(reading, 7) == b"through" and not os.get_inheritable(descriptors[0])
            for descriptor in (reading, *descriptors):
                os.close(descriptor)
            assert control_messages.receive(line) == (None, [])


def test_a_missing_sshd_is_one_sentence_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find", lambda name: None if name == "sshd" else f"/bin/{name}")
    with pytest.raises(LabUnavailableError, match="^no lab: sshd not installed; install openssh-server$") as caught:
        Lab.start(hosts=1)
    assert isinstance(caught.value, RunFailed)


def test_a_lab_that_is_not_up_cannot_be_attached() -> None:
    with pytest.raises(BadInput, match="no lab 'mine' is up .none is up."):
        Lab.attach("mine")
    with pytest.raises(BadInput, match="no lab 'lab' is up"):
        Lab.attach()
