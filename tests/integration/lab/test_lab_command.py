"""driple-lab, as root and as a plain user."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
MODULE = ["-m", "driple.orchestrator.cli_lab"]
NAME = f"test-{os.getpid()}"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """driple-lab with a place of its own for labs, so that those of the tester are not seen."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, *MODULE, *words]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=40)

    yield run
    run("down")
    assert list(tmp_path.iterdir()) == []


def test_up_status_exec_down(command: Command) -> None:
    made = command("up", "--hosts", "2", "--rate", "50mbit", "--disk-mb", "20")
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[:4] == [
        f"lab 'lab': 2 hosts of user {_me()}, links of 50 Mbit/s, up until it is taken down",
        "host  state  eth0 (data)  mgmt0       home",
        "lab1  up     10.71.0.11   10.72.0.11  20 MB",
        "lab2  up     10.71.0.12   10.72.0.12  20 MB",
    ]
    again = command("up")
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1) and "is up already" in again.stderr
    script = 'hostname; printf "%s|" "$@"; cat; echo no >&2; exit 7'
    done = command("exec", "lab2", "--", "sh", "-c", script, "x", "a  b", "$HOME", stdin="in")
    assert (done.returncode, done.stdout, done.stderr) == (7, "lab2\na  b|$HOME|in", "no\n")
    known = json.loads(command("status", "--json").stdout)
    assert known["lab"]["plan"]["disk_mb"] == 20 and list(known["lab"]["hosts"]) == ["lab1", "lab2"]
    assert command("status").stdout.startswith("lab 'lab': 2 hosts")
    wrong = command("exec", "lab3", "--", "true")
    assert (wrong.returncode, wrong.stderr) == (
        2, "unknown lab host 'lab3'; did you mean 'lab2'? (known: lab1, lab2)\n"
    )  # fmt: skip
    assert command("down").stdout == "lab 'lab' is down\n"
    assert command("status").stdout == "no lab is up\n"
    missing = command("down")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)


def test_plain_ssh_and_scp_work(command: Command, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("ssh")
    command("up", "--hosts", "1")
    (folder / "config").write_text(command("ssh-config").stdout)
    (folder / "file").write_text("carried")
    subprocess.run(["scp", "-q", "-F", folder / "config", folder / "file", "lab1:there"], check=True, timeout=30)
    words = ["ssh", "-tt", "-F", str(folder / "config"), "lab1", "cat there; test -t 0 && tty"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL).stdout
    assert said.split() == ["carried/dev/pts/0"]
    wrong = command("connect", "lab1")
    assert wrong.returncode == 2 and "connect must be called by ssh" in wrong.stderr


def test_a_plain_user_has_the_same_lab(plain_user: Any, footprint: Any) -> None:
    lab = ["--name", NAME]
    made = plain_user.run([*MODULE, "up", "--hosts", "2", *lab])
    assert made.returncode == 0, made.stderr
    try:
        folder = Path(f"/tmp/driple-lab-{plain_user.uid}-{NAME}")
        line = "hostname; id -u; pwd; echo mine > file; cat file; df --output=fstype . | tail -1; ls /sys/class/net"
        done = plain_user.run([*MODULE, "exec", *lab, "lab2", "--", "sh", "-c", line])
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == (
            ["lab2", str(plain_user.uid), str(folder / "home"), "mine", "tmpfs", "eth0", "lo", "mgmt0"]
        )
        supervisor = (
            "from driple.orchestrator.lab.lab_client import Lab; import sys; "
            "print(Lab.attach(sys.argv[1]).supervisor_pid)"
        )
        trace = footprint(int(plain_user.run(["-c", supervisor, NAME]).stdout), folder)
        faults = (
            "from driple.orchestrator.lab.lab_client import Lab\n"
            "from driple.contracts.run_spec import NetworkCondition\n"
            "import sys; lab = Lab.attach(sys.argv[1])\n"
            "print(lab.shape(NetworkCondition(rate_mbit=20, loss_pct=1), 1000)['rate'])\n"
            "lab.kill_host('lab1'); lab.revive_host('lab1'); lab.connect('lab1').close()\n"
            "lab.set_link('lab2', False); lab.set_link('lab2', True); lab.connect('lab2').close()\n"
        )
        tried = plain_user.run(["-c", faults, NAME])
        assert (tried.returncode, tried.stdout) == (0, "tbf\n"), tried.stderr
        terminal = plain_user.run(["-tt", "-F", str(folder / "ssh_config"), "lab1", "tty"], program="ssh")
        assert terminal.stdout.split() == ["/dev/pts/0"], terminal.stderr
    finally:
        ended = plain_user.run([*MODULE, "down", *lab])
    assert ended.returncode == 0, ended.stderr
    assert trace.gone(), trace.remains()


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
