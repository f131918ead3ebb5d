"""Placement: assigns tasks to hosts and GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driple.contracts.errors import BadInput, unknown
from driple.contracts.setting import CPU, Setting
from driple.orchestrator.config.inventory import HostSpec, Inventory

PACKED = "packed"
SPREAD = "spread"
EXPLICIT = "explicit"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The placement of an experiment."""

    kind: str | None = None
    """`packed`, `spread` or `explicit`; None follows the setting: one machine is packed, several are spread."""
    machines: int | None = None  # for `spread`: over this many hosts; None for as many as there are, up to one a task
    explicit: Mapping[str, tuple[str, ...]] | None = None  # for `explicit`: host name to its tasks


@dataclass(frozen=True)
class PlacedTask:
    """A task with its host and GPU."""

    task: str
    host: str
    gpu: int | None  # index on its host; None for a server, or where the device is the CPU


def place(setting: Setting, policy: Policy, inventory: Inventory) -> tuple[PlacedTask, ...]:
    """Places every task of a setting, in the order of `Setting.tasks`. Raises BadInput if the hosts do not fit."""
    kind = policy.kind or (PACKED if setting.one_machine else SPREAD)
    if kind == PACKED and not setting.one_machine:
        raise BadInput(
            f"{setting} spans machines, and placement is packed; leave placement out, or use a ...-pcie setting"
        )
    hosts = inventory.for_setting(setting)
    if kind == EXPLICIT:
        return _place_explicitly(setting, policy.explicit or {}, hosts, inventory)
    if setting.one_machine:
        if kind == SPREAD:
            raise BadInput(
                f"{setting} is one machine, and placement is spread; leave placement out, or name a link rate"
            )
        fitting = [
            host for host in hosts if setting.device == CPU or len(host.gpu_indices(setting.device)) >= setting.workers
        ]
        if not fitting:
            raise BadInput(
                f"{setting} needs one host with {_gpus(setting.workers, setting.device)}; "
                f"{_there_is(setting, inventory)}"
            )
        return _fill(setting, dict.fromkeys(setting.tasks, fitting[0]))
    return _place_spread(setting, policy.machines, hosts, inventory)


def together(placed: Sequence[PlacedTask]) -> tuple[tuple[str, ...], ...]:
    """Groups of tasks that share a host: the part of a placement that belongs to the identity of a run."""
    groups: dict[str, list[str]] = {}
    for item in placed:
        groups.setdefault(item.host, []).append(item.task)
    return tuple(tuple(group) for group in groups.values())


def _place_spread(
    setting: Setting, machines: int | None, hosts: Sequence[HostSpec], inventory: Inventory
) -> tuple[PlacedTask, ...]:
    """Round robin over hosts, servers first; a worker skips hosts without a free GPU."""
    if machines and machines > len(setting.tasks):
        raise BadInput(f"{setting} has {len(setting.tasks)} tasks, and cannot be spread over {machines} hosts")
    wanted = min(machines or len(hosts), len(setting.tasks))
    if len(hosts) < wanted or len(hosts) < 2 <= len(setting.tasks):
        needed = max(wanted, 2)
        raise BadInput(f"{setting} needs {needed} hosts {_that_serve(setting)}; {_there_is(setting, inventory)}")
    ring = _ring(setting, hosts, wanted)
    free = {host.name: len(host.gpu_indices(setting.device)) for host in ring}
    chosen: dict[str, HostSpec] = {}
    turn = 0
    for task in setting.tasks:
        for _ in ring:
            host = ring[turn % len(ring)]
            turn += 1
            if setting.device == CPU or task.startswith("ps:") or free[host.name]:
                break
        else:
            raise BadInput(
                f"{setting} needs {_gpus(setting.workers, setting.device)} on {len(ring)} hosts; "
                f"{_there_is(setting, inventory)}"
            )
        chosen[task] = host
        if task.startswith("worker:"):
            free[host.name] -= 1
    return _fill(setting, chosen)


def _ring(setting: Setting, hosts: Sequence[HostSpec], count: int) -> Sequence[HostSpec]:
    """The hosts with most GPUs of the kind, in the order of the file."""
    best = sorted(hosts, key=lambda host: -len(host.gpu_indices(setting.device)))[:count]
    return [host for host in hosts if host in best]


def _place_explicitly(
    setting: Setting, by_host: Mapping[str, Sequence[str]], hosts: Sequence[HostSpec], inventory: Inventory
) -> tuple[PlacedTask, ...]:
    # A host without GPUs can run servers, so only the network of listed hosts is checked here.
    by_name = {host.name: host for host in inventory.hosts or hosts}
    all_tasks = setting.tasks
    chosen: dict[str, HostSpec] = {}
    wrong: list[str] = []
    for name, tasks in by_host.items():
        if name not in by_name:
            wrong.append(unknown("host", name, tuple(by_name)))
        elif not by_name[name].is_on(setting.network):
            wrong.append(f"host {name!r} is not on a {setting.network} network, which {setting} needs")
        for task in tasks:
            if task not in all_tasks:
                wrong.append(unknown(f"task of {setting}", task, all_tasks))
            elif task in chosen:
                wrong.append(f"task {task} is placed twice")
            else:
                chosen[task] = by_name.get(name, HostSpec(name=name, address=name))
    missing = [task for task in all_tasks if task not in chosen]
    if missing:
        wrong.append(f"{setting} has tasks without a host: {', '.join(missing)}")
    if wrong:
        raise BadInput("; ".join(wrong))
    used = {host.name for host in chosen.values()}
    if setting.one_machine and len(used) > 1:
        raise BadInput(f"{setting} is one machine, and the placement names {len(used)}")
    if not setting.one_machine and len(used) < 2 <= len(setting.tasks):
        raise BadInput(f"{setting} spans machines, and the placement names one")
    return _fill(setting, {task: chosen[task] for task in all_tasks})


def _fill(setting: Setting, chosen: Mapping[str, HostSpec]) -> tuple[PlacedTask, ...]:
    """Assigns the next GPU of its host to each worker."""
    taken: dict[str, int] = {}
    placed = []
    for task, host in chosen.items():
        gpu = None
        if task.startswith("worker:") and setting.device != CPU:
            indices = host.gpu_indices(setting.device)
            position = taken.get(host.name, 0)
            if position >= len(indices):
                raise BadInput(f"host {host.name!r} has {_gpus(len(indices), setting.device)}, too few for its workers")
            gpu = indices[position]
            taken[host.name] = position + 1
        placed.append(PlacedTask(task, host.name, gpu))
    return tuple(placed)


def _gpus(count: int, device: str) -> str:
    return f"{count} {device} GPU{'' if count == 1 else 's'}"


def _that_serve(setting: Setting) -> str:
    device = "" if setting.device == CPU else f"with a {setting.device} "
    return f"{device}on a {setting.network} network"


def _there_is(setting: Setting, inventory: Inventory) -> str:
    if not inventory.hosts:
        return "there are none"
    parts = []
    for host in inventory.hosts:
        count = len(host.gpu_indices(setting.device))
        has = [] if setting.device == CPU else [_gpus(count, setting.device)]
        if host.networks and not setting.one_machine and setting.network not in host.networks:
            has.append(f"no {setting.network}")
        parts.append(f"{host.name} ({', '.join(has) or 'fits'})")
    shown = ", ".join(parts[:6]) + (f" and {len(parts) - 6} more" if len(parts) > 6 else "")
    return f"the inventory has {shown}"
