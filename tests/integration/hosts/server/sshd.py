"""A real sshd on 127.0.0.1 for tests: own port, keys and settings, in a folder of its own; as root or as a user."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.ssh import SshHost

Connect = Callable[..., SshHost]
USER = getpass.getuser()


@dataclass
class Sshd:
    """A running sshd and what is needed to log in."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def key(self) -> Path:
        """A private key that may log in."""
        return self.folder / "login"

    @property
    def host_key(self) -> str:
        return (self.folder / "host.pub").read_text()

    @property
    def home(self) -> Path:
        """HOME of commands."""
        return self.folder / "home"

    def spec(self, **changes: object) -> HostSpec:
        fields = {
            "name": "gpu1",
            "address": "127.0.0.1",
            "user": USER,
            "port": self.port,
            "identity_file": str(self.key),
        }
        return HostSpec(**{**fields, **changes})  # type: ignore[arg-type]

    def known(self, path: Path) -> Path:
        """Writes a known_hosts file that has this host."""
        fields = self.host_key.split()
        path.write_text(f"[127.0.0.1]:{self.port} {fields[0]} {fields[1]}\n")
        return path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def sessions(self) -> list[int]:
        """The processes that serve connections."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        return [int(line) for line in found.stdout.split()]

    def signal_sessions(self, number: signal.Signals = signal.SIGKILL) -> None:
        """SIGKILL is as if the host were gone: nobody says goodbye. SIGSTOP is a host that hangs."""
        for pid in self.sessions():
            inner = subprocess.run(["pgrep", "-P", str(pid), "-f", "^sshd"], capture_output=True, text=True)
            for each in [pid, *map(int, inner.stdout.split())]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, number)


def await_end(pid: int) -> None:
    """Waits until a process has ended, whether or not anybody has asked how."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@contextlib.contextmanager
def running_sshd(folder: Path, settings: Sequence[str] = ()) -> Iterator[Sshd]:
    """Runs an sshd until the end of the block. Skips the test where there is none.

    Args:
        folder: gets its keys and settings.
        settings: lines of sshd_config, which go before ours.
    """
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh-keygen") is None:
        pytest.skip("needs openssh-server")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "home").mkdir()
    make_key(folder / "host")
    make_key(folder / "login")
    shutil.copy(folder / "login.pub", folder / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd shuts itself in; the system's own makes it too
    config = folder / "sshd_config"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [
        *settings,
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"SetEnv HOME={folder}/home",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "MaxStartups 100",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "Subsystem sftp internal-sftp",
    ]
    config.write_text("\n".join(lines) + "\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    sshd = Sshd(folder, port, process)
    try:
        _await_port(sshd)
        yield sshd
    finally:
        sshd.signal_sessions()
        process.kill()
        process.wait()


def _await_port(sshd: Sshd) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and sshd.process.poll() is None:
        try:
            sshd.connect().close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"sshd did not start: {(sshd.folder / 'log').read_text()}")
