"""Writes the graph of a worker in another process: this one must not switch to the behaviour of TensorFlow 1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import JobSpec
from driple.workloads.runtime.watchdog import Watchdog

_DIES_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
from driple.workloads.cli import main
sys.exit(main(sys.argv[2:]))
"""


def write_graph(job: JobSpec, index: int, graph_file: Path | None, watchdog: Watchdog) -> None:
    """Writes the graph of a worker; nothing if `graph_file` is None.

    The kernel ends that process with this one, and the job goes through a pipe, so nothing is left behind.
    """
    if graph_file is None:
        return
    watchdog.expect(job.start_timeout_s, f"gave up after {job.start_timeout_s:g} s: still writing {graph_file}")
    command = [sys.executable, "-c", _DIES_WITH_PARENT, str(os.getpid()), "graph", "--job", "/dev/stdin"]
    command += ["--task", f"worker:{index}", "--out", str(graph_file)]
    if subprocess.run(command, input=json.dumps(job.to_json()).encode(), check=False).returncode:
        raise RunFailed(f"the graph could not be written to {graph_file}")
