"""StepFile: training steps of workloads, from the zoo, from the file of a folder of datasets, and from TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.run_spec import JobSpec, Measurement, RunSpec, TaskSpec, Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import (
    StepKey,
    TrainingStep,
    read_step,
    read_steps,
    step_key,
    stored_step,
    write_steps,
)

BUILD_S = 600.0
"""Longest time to build the graph of one workload."""


class StepFile:
    """Steps of workloads. Those that TensorFlow builds go into the file; those of the zoo are not stored again."""

    def __init__(self, path: Path, say: Callable[[str], None] = lambda text: None) -> None:
        """Reads the file, if there is one. Raises BadInput if it is of another kind."""
        self.path = path
        self._say = say
        self._stored: dict[StepKey, TrainingStep] = dict(read_steps(path)) if path.is_file() else {}
        self._zoo: dict[StepKey, TrainingStep | None] = {}

    def step(self, workload: Workload, setting: Setting) -> TrainingStep:
        """The step of a workload. Raises BadInput if it must be built and TensorFlow is not installed."""
        key = step_key(workload, setting.servers)
        if key not in self._zoo:
            self._zoo[key] = stored_step(workload, setting)
        found = self._zoo[key] or self._stored.get(key)
        if found is None:
            self._say(f"{workload.label}: builds its graph")
            found = self._stored[key] = built_step(workload, setting)
            write_steps(self._stored, self.path)
        return found


def built_step(workload: Workload, setting: Setting) -> TrainingStep:
    """The step of a graph that TensorFlow builds now. Raises BadInput or RunFailed in one line."""
    if find_spec("tensorflow") is None:
        raise BadInput(
            f"{workload.label}: its graph is not stored and is built with TensorFlow, which is not installed here: pip"
            " install 'driple[workloads]'"
        )
    tasks = tuple(TaskSpec(task, "nowhere", f"127.0.0.1:{port}") for port, task in enumerate(setting.tasks, start=1))
    spec = RunSpec(setting, replace(workload, update="sync"), Measurement(steps=1), together=(setting.tasks,))
    with tempfile.TemporaryDirectory() as folder:
        job, graph = Path(folder, "job.json"), Path(folder, "worker.parquet")
        job.write_text(json.dumps(JobSpec(spec, tasks).to_json()))
        command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--job", str(job), "--out", str(graph)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S)
        if done.returncode:
            last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1]
            raise (BadInput if done.returncode == BadInput.exit_code else RunFailed)(last)
        return read_step(graph, loop_length=workload.sequence_length or 1)
