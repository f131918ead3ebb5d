"""Ways to start a task on a host: forked from a warm process, by a python of its own, in a container.

Each turns `start` into one or two requests to the steward and says what it was; what the steward then tells about the
task is the same for all but the warm way, whose process speaks for its tasks (workloads/runtime/forkserver.py).
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
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
"""A sweep that is longer gets another."""
TASK_MODULE = "driple.workloads.cli"


@dataclass(frozen=True)
class TaskPlace:
    """A task of one attempt on its host: names of its processes, and where it has its files."""

    task: str
    run_folder: str
    """Absolute, and of this attempt alone."""

    @property
    def process(self) -> str:
        """What the steward calls it. Never that of an earlier attempt, of which news may still be on its way."""
        return f"{self.task} {self.run_folder.rpartition('.')[2]}"

    @property
    def sampler(self) -> str:
        """What the steward calls its sampler."""
        return f"sampler of {self.process}"

    @property
    def job(self) -> str:
        return f"{self.run_folder}/job.json"

    @property
    def out(self) -> str:
        return f"{self.run_folder}/tasks/{file_name(self.task)}"

    @property
    def trace(self) -> str:
        return f"{self.run_folder}/trace/{file_name(self.task)}.parquet"

    @property
    def steps(self) -> str:
        return f"{self.out}/steps.parquet"

    @property
    def sampler_spec(self) -> str:
        return f"{self.run_folder}/trace/{file_name(self.task)}.json"

    @property
    def sampler_log(self) -> str:
        return f"{self.out}/sampler.log"

    @property
    def graph(self) -> str | None:
        """One worker leaves the graph for all: they differ in nothing but their number."""
        return f"{self.out}/graph.parquet" if self.task == "worker:0" else None

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
        """Starts it, and does not wait until it is ready."""
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
        """Asks for a task; `started` follows."""
        order = {"job": place.job, "task": place.task, "out": place.out}
        if place.graph:
            order["graph"] = place.graph
        self._station.ask("tell", name=WARM, line=json.dumps({"run": order}))

    def stop(self, pid: int) -> None:
        """Asks for the end of a task: SIGTERM, then SIGKILL."""
        self._station.ask("tell", name=WARM, line=json.dumps({"stop": pid}))


def fork_server_message(event: Event) -> dict[str, Any]:
    """The message in a line of a fork server, such as {"started": ...}; empty for what a library prints."""
    try:
        message = json.loads(event.value.get("line", ""))
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def start_python(station: Station, place: TaskPlace, python: str, limit_s: float) -> int:
    """Starts a task with a python of its own; its process number."""
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
    """`docker run` of a task with its sampler around it: the interface that is sampled is the container's own.

    Files have the same paths inside and outside, so that one job file serves all. The container ends when its stdin
    does: the sampler inside watches it.
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
    """For messages: as a person could type it."""
    return shlex.join(argv)
