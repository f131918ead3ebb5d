"""Ways to start a task on a host: forked from a fork server, as a new Python process, or in a container.

The agent reports events of all of them, except that a fork server reports for its tasks
(workloads/runtime/forkserver.py).
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.run_dir import file_name
from driple.orchestrator.attempt.failure import exit_text
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_client import Event, Station

WARM = "warm"
PYTHON = "python"
CONTAINER = "container"
WARM_READY_S = 120.0
WARM_LIMIT_S = 7 * 24 * 3600.0
"""A longer sweep starts another one."""
TASK_MODULE = "driple.workloads.cli"


class TaskPlace:
    """Process names and files of a task of one attempt."""

    def __init__(self, task: str, run_folder: str) -> None:
        """`run_folder` is absolute and unique to the attempt."""
        self.task = task
        self.run_folder = run_folder
        self.process = f"{task} {run_folder.rpartition('.')[2]}"
        """Unique to the attempt, because events of an earlier one may still arrive."""
        self.sampler = f"sampler of {self.process}"
        self.job = f"{run_folder}/job.json"
        self.out = f"{run_folder}/tasks/{file_name(task)}"
        self.trace = f"{run_folder}/trace/{file_name(task)}.parquet"
        self.sampler_spec = f"{run_folder}/trace/{file_name(task)}.json"
        self.sampler_log = f"{self.out}/sampler.log"
        self.steps = f"{self.out}/steps.parquet"
        self.graph = f"{self.out}/graph.parquet" if task == "worker:0" else None
        """One worker writes the graph, which is the same for all."""

    def command(self, python: str, *, lifeline: bool) -> list[str]:
        """The task's own command."""
        argv = [python, "-m", TASK_MODULE, "task", "--job", self.job, "--task", self.task, "--out", self.out]
        argv += ["--graph", self.graph] if self.graph else []
        return argv + (["--watch-stdin"] if lifeline else [])


class ForkServer:
    """A process on a host that has TensorFlow loaded and forks tasks; one for all runs of a sweep."""

    def __init__(self, station: Station, python: str) -> None:
        self.ready = False
        """Whether it can fork tasks."""
        self.failure: str | None = None
        self._station = station
        self._python = python

    def begin(self) -> None:
        """Starts it without waiting until it is ready."""
        self._station.ask(
            "start",
            name=WARM,
            argv=[self._python, "-m", TASK_MODULE, "warm"],
            stderr="warm.log",
            talk=True,
            limit_s=WARM_LIMIT_S,
        )

    def take(self, event: Event) -> None:
        """Updates the state from an event. Called for every event, also while no attempt listens."""
        if event.kind == "ended":
            self.ready = False
            self.failure = f"the fork server on {event.host} {exit_text(event.value['exit_code'])}"
        elif "ready" in fork_server_message(event):
            self.ready = True

    def run(self, place: TaskPlace) -> None:
        """Requests a task; a `started` message follows."""
        order = {"job": place.job, "task": place.task, "out": place.out}
        if place.graph:
            order["graph"] = place.graph
        self._station.ask("tell", name=WARM, line=json.dumps({"run": order}))

    def stop(self, pid: int) -> None:
        """Requests the end of a task: SIGTERM, then SIGKILL."""
        self._station.ask("tell", name=WARM, line=json.dumps({"stop": pid}))


def fork_server_message(event: Event) -> dict[str, Any]:
    """The message in a line of a fork server, such as {"started": ...}; empty for what a library prints."""
    try:
        message = json.loads(event.value.get("line", ""))
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def start_python(station: Station, place: TaskPlace, python: str, limit_s: float) -> int:
    """Starts a task as a new Python process; returns its PID."""
    answer = station.ask(
        "start",
        name=place.process,
        argv=place.command(python, lifeline=True),
        stdout=f"{place.out}/stdout.log",
        stderr=f"{place.out}/stderr.log",
        limit_s=limit_s,
    )
    return int(answer["pid"])


def container_command(
    spec: HostSpec, place: TaskPlace, *, name: str, address: str, gpu: int | None, agent: str, user: str
) -> list[str]:
    """`docker run` of a sampler that starts the task, so that it samples the interface of the container.

    Paths are the same inside and outside, so that one job file serves all. The container ends when its stdin closes.
    """
    if spec.image is None:
        raise RunFailed(f"{spec.name}: no image to run a container from")
    argv = [spec.docker, "run", "--rm", "--interactive", "--init", "--name", name, "--user", user]
    host, _, port = address.rpartition(":")
    argv += ["--publish", f"{host}:{port}:{port}", "--env", "HOME=/tmp"]
    argv += ["--gpus", f"device={gpu}"] if gpu is not None else []
    for option, value in (("--cpus", spec.cpus), ("--memory", spec.memory)):
        argv += [option, str(value)] if value is not None else []
    argv += ["--volume", f"{place.run_folder}:{place.run_folder}", "--volume", f"{agent}:{agent}:ro"]
    if spec.data_dir is not None:
        argv += ["--volume", f"{spec.data_dir}:{spec.data_dir}:ro"]
    return [*argv, spec.image, "python3", agent, "--spec", place.sampler_spec]


def shown_command(argv: list[str]) -> str:
    """The command line, for messages."""
    return shlex.join(argv)
