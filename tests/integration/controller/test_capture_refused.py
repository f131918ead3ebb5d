"""A sweep that asks for packets where nobody may record them: one line, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from driple.contracts.manifest import FAILED, Manifest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXPERIMENT = """\
name: refused
setting: cpu-p0w2-pcie
hosts: local
workloads: [{model: lenet, image_size: 16, batch_size: 2, width: 0.125, strategy: allreduce, framework: torch}]
steps: 5
threads: 1
capture: headers
"""
WITHOUT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 13, 0, 0, 0)  # drops CAP_NET_RAW from what is executed; a plain user has none
os.execv(sys.executable, [sys.executable, "-m", "driple.orchestrator.cli", *sys.argv[1:]])
"""


def test_the_run_fails_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "e.yaml"), "--output", str(tmp_path / "traces")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    told = [line for line in (done.stdout + done.stderr).splitlines() if "CAP_NET_RAW" in line]
    assert told and all("setcap cap_net_raw+ep" in line for line in told)
    assert done.stderr.count("Traceback") == done.stdout.count("Traceback") == 0
    assert not list(tmp_path.glob("traces/*/.*.partial"))
    for path in tmp_path.glob("traces/*/*/run.json"):
        manifest = Manifest.read(path)
        assert manifest.status == FAILED and manifest.attempt == 1  # another attempt would fail, too
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running
