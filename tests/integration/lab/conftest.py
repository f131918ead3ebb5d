"""Real labs: namespaces, links and sshd."""

from __future__ import annotations

import base64
import os
import pwd
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest

from driple.orchestrator.lab import tools
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError

Remote = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(60))


@pytest.fixture(scope="session", autouse=True)
def machine_can() -> None:
    """A machine that cannot have a lab says why, once."""
    try:
        Lab.start(hosts=1).close()
    except LabUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three hosts for all tests of a file, each of which leaves them as they were."""
    with Lab.start(hosts=3) as started:
        yield started


def logged_in(lab: Lab, name: str, host_key: str | None = None) -> paramiko.SSHClient:
    """A login over a socket of the lab, with the host's key checked against `host_key`."""
    kind, key = (host_key or lab.host_key(name)).split()
    client = paramiko.SSHClient()
    client.get_host_keys().add(name, kind, paramiko.Ed25519Key(data=base64.b64decode(key)))
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        client.connect(
            name,
            username=lab.user,
            key_filename=str(lab.key_file),
            sock=cast(Any, lab.connect(name)),
            look_for_keys=False,
            allow_agent=False,
            timeout=20,
        )
    except BaseException:
        client.close()
        raise
    return client


@pytest.fixture
def login() -> Callable[..., paramiko.SSHClient]:
    return logged_in


@pytest.fixture
def remote() -> Iterator[Remote]:
    """Runs a shell line on a host and returns what it printed; a second host's answer can be waited for meanwhile."""
    clients: dict[tuple[Path, str], paramiko.SSHClient] = {}

    def run(lab: Lab, name: str, line: str, wait: bool = True) -> str | Callable[[], str]:
        client = clients.get((lab.folder, name))
        if client is None:
            client = clients[lab.folder, name] = logged_in(lab, name)
        transport = client.get_transport()
        assert transport is not None
        # Not client.exec_command: the stdin that it makes takes its channel's lock when it is collected. Where that is
        # in paramiko's own thread while this holds the lock, connection and test stand still for good.
        channel = transport.open_session(timeout=40)
        channel.settimeout(40)
        channel.exec_command(line)

        def answer() -> str:
            said: str = channel.makefile("rb").read().decode()
            assert channel.recv_exit_status() == 0, said + channel.makefile_stderr("rb").read().decode()
            channel.close()
            return said

        return answer() if wait else answer

    yield run  # type: ignore[misc]
    for client in clients.values():
        client.close()


@dataclass(frozen=True)
class PlainUser:
    """Somebody who is not root, and an interpreter with the project that he may run."""

    uid: int
    gid: int
    python: str
    environment: dict[str, str]

    def run(self, arguments: list[str], program: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program or self.python, *arguments],
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=40,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def plain_user(checkout: Path, tmp_path: Path) -> PlainUser:
    if os.getuid() != 0:
        pytest.skip("already a plain user: all the other tests are this one")
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("this machine has no user nobody")
    packages = f"{checkout / 'typings'}:{sysconfig.get_path('purelib')}"
    environment = {
        "PATH": os.defpath + ":/usr/sbin:/sbin",
        "HOME": "/",
        "TMPDIR": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # The interpreter of the tests is often in root's home, where nobody else may go.
    for python, more in ((sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": packages})):
        user = PlainUser(nobody.pw_uid, nobody.pw_gid, python, environment | more)
        program = "import sys, yaml, driple.orchestrator.lab.lab_client as c; print(*sys.version_info[:2])"
        try:
            if user.run(["-c", program]).stdout.split() == [str(part) for part in sys.version_info[:2]]:
                return user
        except OSError:
            continue
    pytest.skip("no interpreter that a plain user may run")


def within(seconds: float, true: Callable[[], object]) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Footprint:
    """What a lab has on the machine: its processes, with all they started, and their namespaces."""

    def __init__(self, supervisor: int, folder: Path) -> None:
        self.folder = folder
        self.before = _machine()
        self.processes = {pid: _born(pid) for pid in [supervisor, *_descendants(supervisor)]}
        own = set(_namespaces(os.getpid()))
        self.namespaces = {each for pid in self.processes for each in _namespaces(pid)} - own
        assert len(self.processes) > 1 and len(self.namespaces) > 7, "this would prove nothing"

    def remains(self) -> list[str]:
        """What is still there."""
        left = [f"process {pid}" for pid, born in self.processes.items() if born and _born(pid) == born]
        everybody = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        left += sorted(self.namespaces & {each for pid in everybody for each in _namespaces(pid)})
        left += [str(self.folder)] if self.folder.exists() else []
        return left

    def gone(self, seconds: float = 10) -> bool:
        assert _machine() == self.before, "the machine's own network or mounts have changed"
        return within(seconds, lambda: not self.remains())


@pytest.fixture
def footprint() -> type[Footprint]:
    return Footprint


def _machine() -> tuple[list[str], str, list[str]]:
    named = subprocess.run([tools.tool("ip"), "netns", "list"], capture_output=True, text=True, timeout=20).stdout
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "driple-lab" in line]
    return sorted(path.name for path in Path("/sys/class/net").iterdir()), named, mounts


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [each for child in children for each in [child, *_descendants(child)]]


def _born(pid: int) -> str | None:
    """When the process began; None if it is gone or a zombie that only its parent can end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _namespaces(pid: int) -> list[str]:
    try:
        return [str(path.readlink()) for path in Path(f"/proc/{pid}/ns").iterdir()]
    except OSError:
        return []
