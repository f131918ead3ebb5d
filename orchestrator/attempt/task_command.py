"""Ways to start a task on a host: forked from a fork server, as a new Python process, or in a container.

The agent reports events of all of them, except that a fork server reports for its tasks
(workloads/runtime/forkserver.py).
"""

from __future__ import annotations

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.formats.task_files import GRAPH_FILE, SAMPLER_LOG, STDERR_LOG, STDOUT_LOG, STEPS_TABLE
from driple.contracts.manifest import WARM
from driple.contracts.protocol import events, forkserver_messages, requests
from driple.contracts.protocol.message import Tagged
from driple.contracts.run_dir import file_name
from driple.orchestrator.attempt.failure import exit_text
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_client import AgentClient, Event

WARM_READY_S = 120.0
WARM_LIMIT_S = 7 * 24 * 3600.0  # a longer sweep starts another one
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
        self.sampler_log = f"{self.out}/{SAMPLER_LOG}"
        self.steps = f"{self.out}/{STEPS_TABLE}"
        self.graph = f"{self.out}/{GRAPH_FILE}" if task == "worker:0" else None
        """One worker writes the graph, which is the same for all."""

    def command(self, python: str, *, lifeline: bool) -> list[str]:
        argv = [python, "-m", TASK_MODULE, "task", "--job", self.job, "--task", self.task, "--out", self.out]
        argv += ["--graph", self.graph] if self.graph else []
        return argv + (["--watch-stdin"] if lifeline else [])


class ForkServer:
    """A process on a host that has a framework loaded and forks tasks; one for all runs of a sweep with it."""

    def __init__(self, client: AgentClient, python: str, framework: str) -> None:
        self.framework = framework
        self.process = f"{WARM} {framework}"
        self.log = f"{WARM}-{framework}.log"
        self.ready = False  # whether it can fork tasks
        self.failure: str | None = None
        self._client = client
        self._python = python

    def begin(self) -> None:
        """Starts it, and does not wait until it is ready."""
        argv = (self._python, "-m", TASK_MODULE, "warm", "--framework", self.framework)
        start = requests.Start(name=self.process, argv=argv, stderr=self.log, talk=True, limit_s=WARM_LIMIT_S)
        self._client.ask(start)

    def take(self, event: Event) -> None:
        """Updates the state from an event. Called for every event, also while no attempt listens."""
        if isinstance(event.value, events.Ended):
            self.ready = False
            self.failure = f"the fork server on {event.host} {exit_text(event.value.exit_code)}"
        elif isinstance(fork_server_message(event), forkserver_messages.Ready):
            self.ready = True

    def run(self, place: TaskPlace) -> None:
        """Asks for a task; `started` follows."""
        order = forkserver_messages.Run(job=place.job, task=place.task, out=place.out)
        if place.graph:
            order.graph = place.graph
        self._tell(order)

    def stop(self, pid: int) -> None:
        self._tell(forkserver_messages.Stop(pid=pid))

    def _tell(self, message: Tagged) -> None:
        self._client.ask(requests.Tell(name=self.process, line=message.to_line()))


def fork_server_message(event: Event) -> Tagged | None:
    """The message in a line of a fork server; None for what a library prints."""
    if not isinstance(event.value, events.Said):
        return None
    try:
        return forkserver_messages.read_line(event.value.line)
    except BadInput:
        return None


def start_python(client: AgentClient, place: TaskPlace, python: str, limit_s: float) -> int:
    """Starts a task with a python of its own; its process number."""
    start = requests.Start(
        name=place.process,
        argv=tuple(place.command(python, lifeline=True)),
        stdout=f"{place.out}/{STDOUT_LOG}",
        stderr=f"{place.out}/{STDERR_LOG}",
        limit_s=limit_s,
    )
    return client.ask(start).pid


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
