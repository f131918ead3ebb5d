"""Files to a host and back."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import Connect, Sshd

from driple.contracts.errors import HostError, HostLost
from driple.orchestrator.hosts.ssh import SshHost

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", ["plain", "a b", "-n", "it's $(id) é\nx", "'"])
def test_there_and_back(name: str, host: SshHost, sshd: Sshd, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    host.put(b"old", f"~/{name}")
    host.put(content, f"~/{name}", mode=0o750)
    assert (sshd.home / name).read_bytes() == content
    assert (sshd.home / name).stat().st_mode & 0o777 == 0o750
    host.get(f"~/{name}", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    (sshd.home / name).unlink()
    assert list(sshd.home.iterdir()) == []


def test_an_empty_one(host: SshHost, tmp_path: Path) -> None:
    host.put(b"", f"{tmp_path}/empty")
    host.get(f"{tmp_path}/empty", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b""


def test_what_cannot_be_said_why(host: SshHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"gpu1 .*: cannot write .*/none/x: .*(nonexistent|No such file)"):
        host.put(b"x", f"{tmp_path}/none/x")
    with pytest.raises(HostError, match=r"gpu1 .*: cannot read .*/none/x: .*No such file"):
        host.get(f"{tmp_path}/none/x", tmp_path / "back")
    with pytest.raises(HostError, match=r"cannot fetch /dev/null to .*/none/y: No such file"):
        host.get("/dev/null", tmp_path / "none" / "y")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HostError, match="it is a folder"):
        host.put(b"x", f"{tmp_path}/folder")
    assert [path.name for path in tmp_path.rglob("*") if not path.name.startswith("known")] == ["folder"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, where this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(host: SshHost, small_disk: Path) -> None:
    host.put(b"old", f"{small_disk}/file")
    with pytest.raises(HostError, match="cannot write .*/disk/file: .*No space left on device"):
        host.put(bytes(3_000_000), f"{small_disk}/file")
    assert [path.name for path in small_disk.iterdir()] == ["file"]
    assert (small_disk / "file").read_bytes() == b"old"


def test_a_connection_that_breaks_leaves_the_old_file(
    connect: Connect, sshd: Sshd, host: SshHost, tmp_path: Path
) -> None:
    """To the host, it looks as if the file had ended there."""
    far = tmp_path / "far"
    far.mkdir()
    plugs: list[socket.socket] = []

    def plug() -> socket.socket:
        plugs.append(sshd.connect())
        return plugs[-1]

    broken = connect(connect=plug, host_key=sshd.host_key)
    broken.open()
    broken.put(b"old", f"{far}/file")
    errors: list[BaseException] = []

    def put() -> None:
        try:
            broken.put(bytes(200_000_000), f"{far}/file", timeout_s=100)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    end = time.monotonic() + 30
    while time.monotonic() < end and not any(path.stat().st_size for path in far.glob("*.partial")):
        time.sleep(0.01)
    plugs[0].shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert [type(error) for error in errors] == [HostLost]
    while time.monotonic() < end and list(far.glob("*.partial")):
        time.sleep(0.01)
    assert [path.name for path in far.iterdir()] == ["file"]
    assert (far / "file").read_bytes() == b"old"
