"""Prepares a run: checks its hosts, reserves ports, writes the job file into every folder of the attempt."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import CONTAINER, PYTHON, WARM
from driple.contracts.protocol import requests
from driple.contracts.protocol.message import Message
from driple.contracts.run_spec import JobSpec, RunSpec, TaskSpec
from driple.contracts.setting import CPU
from driple.contracts.strategy import BACKENDS, FRAMEWORKS
from driple.orchestrator.attempt.data_network import Links
from driple.orchestrator.attempt.task_command import TaskPlace
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.config.experiment import Timeouts
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.config.placement import PlacedTask
from driple.orchestrator.hosts.agent_client import Clients

A = TypeVar("A", bound=Message)
HOUR_S = 3600.0
CODE_FILE = "model.py"
GO_FILE = "go"
SHARE_FILE = "share"
LOOK_S = 60.0
JOIN_S = 20.0
MIN_FREE_BYTES = 64 * 1024 * 1024  # an hour at 100 Hz is a trace of about 40 MB


@dataclass(frozen=True, kw_only=True)
class Request:
    """The input of an attempt."""

    spec: RunSpec
    run_id: str
    placed: Sequence[PlacedTask]
    hosts: Mapping[str, HostSpec]
    clients: Clients
    links: Links
    timeouts: Timeouts
    code: bytes | None = None  # the user's model file
    cold: bool = False  # starts a new Python for every task

    @property
    def limit_s(self) -> float:
        limit = self.timeouts.run_s
        return limit if limit is not None else (self.spec.measurement.duration_s or 0.0) + HOUR_S


def prepare(request: Request, folders: Mapping[str, str]) -> tuple[JobSpec, dict[str, TaskState]]:
    """Checks the hosts and writes the job file into `folders`, by host. Raises HostError if a host lacks something."""
    by_host: dict[str, list[PlacedTask]] = {}
    for item in request.placed:
        by_host.setdefault(item.host, []).append(item)
    with ThreadPoolExecutor(max_workers=min(16, len(by_host))) as pool:
        list(pool.map(lambda name: _check(request, name, by_host[name]), by_host))
    wanted = {name: requests.Ports(count=len(items)) for name, items in by_host.items()}
    ports = ask_each(request.clients, wanted)
    addresses: dict[str, str] = {}
    for name, items in by_host.items():
        address = request.links.data_address(request.spec.setting, request.clients[name])
        for item, port in zip(items, ports[name].ports, strict=True):
            addresses[item.task] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    job = JobSpec(
        run=request.spec,
        tasks=tuple(
            TaskSpec(item.task, item.host, addresses[item.task], item.gpu, request.hosts[item.host].data_dir)
            for item in request.placed
        ),
        start_timeout_s=request.timeouts.start_s,
        step_timeout_s=request.timeouts.step_s,
    )
    _write(request, job, folders)
    return job, {item.task: _state(request, item, folders, len(by_host[item.host])) for item in request.placed}


def let_go(clients: Clients, folders: Mapping[str, str]) -> None:
    """Tells the workers that all tasks are sampled."""
    ask_each(clients, {name: requests.Write(path=f"{folders[name]}/{GO_FILE}", text="") for name in folders})


def have_shares(request: Request) -> bool:
    """Whether hosts of the run have a share of the processors, which their tasks must join."""
    return any(request.hosts[name].cpu_groups for name in request.clients)


def give_shares(request: Request, states: Iterable[TaskState], folders: Mapping[str, str]) -> None:
    """Gives the tasks the share of their host, and lets the workers begin.

    The agent, sshd and the samplers stay outside, so that the tasks have all of it.
    """
    waiting = []
    for state in states:
        groups = request.hosts[state.client.name].cpu_groups
        if groups and state.pid is not None:
            waiting.append(state.client.post(requests.JoinGroups(pid=state.pid, files=groups)))
    for answer in waiting:
        answer(JOIN_S)
    ask_each(request.clients, {name: requests.Write(path=f"{folders[name]}/{SHARE_FILE}", text="") for name in folders})


def ask_each(clients: Clients, wanted: Mapping[str, requests.Request[A]], timeout_s: float = 20.0) -> dict[str, A]:
    """Sends requests to several hosts at once; returns the answers by host."""
    answers = {name: clients[name].post(request) for name, request in wanted.items()}
    return {name: answer(timeout_s) for name, answer in answers.items()}


def python_versions(info: requests.HostInfo | None) -> dict[str, str | None]:
    """Versions of the python that runs tasks, and of its packages."""
    python = None if info is None else info.python
    return {} if python is None else {"python": python.version, **python.packages}


def read_code(folder: Path, spec: RunSpec) -> bytes | None:
    """The user's model file, if the workload has one."""
    if spec.workload.code_sha256 is None:
        return None
    path = folder / spec.workload.model.rpartition(":")[0]
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFailed(f"model {path}: {error.strerror}") from None


def _check(request: Request, name: str, placed: Sequence[PlacedTask]) -> None:
    """Raises HostError if a host lacks something. Asks each host once in a sweep."""
    client, spec = request.clients[name], request.hosts[name]
    if client.info is None:
        python = None if spec.image else (spec.python,)
        look = requests.Look(gpus=request.spec.setting.device != CPU, python=python)
        client.info = client.ask(look, timeout_s=LOOK_S)
    info = client.info
    free = info.disk_free_bytes
    if free < MIN_FREE_BYTES:
        client.info = None  # it may be cleared: ask again next time
        raise HostError(
            f"{name}: {free // 2**20} MB free in {client.facts.work}, and a run needs {MIN_FREE_BYTES // 2**20}; "
            "make room there, or choose another work_dir"
        )
    framework = FRAMEWORKS[request.spec.workload.framework]
    backend = BACKENDS[request.spec.workload.backend]
    needed = ("driple", *framework.packages, *backend.packages)
    absent = [package for package in needed if not (info.python and info.python.packages.get(package))]
    if not spec.image and absent:
        client.info = None
        extras = ",".join(filter(None, (framework.extra, backend.extra)))
        lacks = info.python_error or f"it needs {', '.join(needed)}, and has no {', '.join(absent)}"
        recipe = f" (and {', '.join(backend.packages)} as in {backend.recipe})" if backend.recipe else ""
        raise HostError(
            f"{name}: {spec.python} cannot train: {lacks}; install driple[{extras}]{recipe} there, or name another "
            "python or an image in the inventory"
        )
    if spec.image and not (framework.one_port and backend.one_port) and request.spec.setting.workers > 1:
        raise HostError(
            f"{name}: {backend.library or framework.title} opens ports of its own, and a container publishes one; "
            "name a python instead of an image in the inventory"
        )
    present = {gpu.index for gpu in info.gpus or ()}
    missing = [str(item.gpu) for item in placed if item.gpu is not None and item.gpu not in present]
    if missing:
        client.info = None
        there = f"it has {', '.join(map(str, sorted(present)))}" if present else info.gpus_error or "it has none"
        raise HostError(f"{name}: no GPU {', '.join(missing)}; {there}")


def _write(request: Request, job: JobSpec, folders: Mapping[str, str]) -> None:
    texts = {}
    for name in folders:
        own = to_plain(job)
        own["code_path"] = None if request.code is None else f"{folders[name]}/{CODE_FILE}"
        own["go_path"] = f"{folders[name]}/{GO_FILE}"
        own["share_path"] = f"{folders[name]}/{SHARE_FILE}" if have_shares(request) else None
        texts[name] = requests.Write(path=f"{folders[name]}/job.json", text=json.dumps(own, indent=1))
    ask_each(request.clients, texts)
    if request.code is not None:
        for name, folder in folders.items():
            request.clients[name].host.put(request.code, f"{folder}/{CODE_FILE}")


def _state(request: Request, item: PlacedTask, folders: Mapping[str, str], tasks_on_host: int) -> TaskState:
    host, client = request.hosts[item.host], request.clients[item.host]
    place = TaskPlace(item.task, folders[item.host])
    way = CONTAINER if host.image else PYTHON if request.cold else WARM
    source = request.links.traffic_source(request.spec.setting, client, tasks_on_host, way)
    command = shlex.join(place.command(host.python, lifeline=way == PYTHON))
    return TaskState(item.task, place, client, way, command, item.gpu, source)
