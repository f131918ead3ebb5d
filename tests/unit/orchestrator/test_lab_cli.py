"""driple-lab without a lab: help, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from driple.orchestrator.cli_lab import main
from driple.orchestrator.lab import tools


@pytest.fixture(autouse=True)
def no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["up", "--hosts", "0"], "hosts: expected 1 to 200, got 0"),
        (["up", "--hosts", "many"], "driple-lab up: error: argument --hosts: invalid int value: 'many'"),
        (["up", "--rate", "1"], "driple-lab: error: --rate: expected a rate with its unit"),
        (["up", "--rate", "-1gbit"], "driple-lab up: error: argument --rate: expected one argument"),
        (["up", "--disk-mb", "0"], "disk_mb: expected 1 to 1000000, got 0"),
        (["up", "--name", "My Lab"], "name of a lab: expected a-z, 0-9 and '-'"),
        (["up", "--host", "3"], "driple-lab: error: unrecognized arguments: --host 3"),
        (["down"], "no lab 'lab' is up (none is up); `driple-lab up` creates one"),
        (["exec", "lab1", "--", "true"], "no lab 'lab' is up"),
        (["status", "--name", "other"], "no lab 'other' is up"),
        (["dwon"], "driple-lab: error: argument PART: invalid choice: 'dwon'"),
        ([], "driple-lab: error: the following arguments are required: PART"),
    ],
)
def test_bad_input_is_one_line_and_2(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as end:
        code = int(str(end.code))
    said = capsys.readouterr()
    assert (code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert said.err.startswith(line)


def test_no_lab_is_a_fact_and_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0 and main(["status", "--json"]) == 0
    assert capsys.readouterr().out == "no lab is up\n{}\n"


def test_a_machine_that_cannot_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools, "find", lambda name: None)
    assert main(["up"]) == 1
    assert capsys.readouterr().err == (
        "no lab: unshare and ip and tc and sshd and ssh-keygen not installed; "
        "install iproute2 and openssh-client and openssh-server and util-linux\n"
    )


def test_help_loads_neither_ssh_nor_yaml() -> None:
    program = (
        "import sys; from driple.orchestrator.cli_lab import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'paramiko', 'fabric', 'yaml', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines()[-2:] == ["  driple-lab up --hosts 4 --rate 1gbit", "[]"], done.stderr
