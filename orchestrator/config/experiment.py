"""Reads an experiment file and reports all its faults at once (docs/reference/experiment-language.md)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from driple.contracts.errors import BadInput, FileFaults, shown
from driple.contracts.formats.packets import CAPTURES
from driple.contracts.manifest import SIMULATED
from driple.contracts.quantity import ExpectedError
from driple.contracts.run_spec import Measurement, NetworkCondition, Workload, condition_key
from driple.contracts.setting import CPU, Setting
from driple.contracts.strategy import STRATEGIES, device_fault
from driple.orchestrator.config.inventory import Inventory, read_hosts
from driple.orchestrator.config.placement import EXPLICIT, PACKED, SPREAD, Policy, place
from driple.orchestrator.config.validation import (
    At,
    Faults,
    choice,
    duration_s,
    integer,
    milliseconds,
    number,
    open_document,
    percentage,
    rate_mbit,
    text,
)
from driple.orchestrator.config.workload_grid import AXES, MAX_COMBINATIONS, Found, WorkloadReader, read_axes
from driple.orchestrator.config.yaml_nodes import node_of
from driple.orchestrator.hosts.registry import DEFAULT, INVENTORY, LAB

_PARSERS = {"mbit": rate_mbit, "ms": milliseconds, "pct": percentage}
"""By the unit in which the name of a field of NetworkCondition ends."""
NETWORK_AXES: dict[str, tuple[str, Callable[[object], Any]]] = {
    condition_key(one.name): (
        one.name,
        choice(one.name, one.metadata["choices"]) if one.metadata["choices"] else _PARSERS[one.name.rpartition("_")[2]],
    )
    for one in fields(NetworkCondition)
}
"""Field of NetworkCondition and parser, by key."""

KEYS: dict[str, str] = {
    "name": "folder of its runs under the output folder; the file's own name if left out",
    "setting": "a setting, or a list of them",
    "hosts": "lab (the embedded default), local, simulated, or an inventory file",
    "placement": "packed, spread, {spread: machines} or {explicit: {host: [tasks]}}; follows the setting if left out",
    "defaults": "axes (but model) of every grid that does not say otherwise",
    "workloads": "a list of grids; every combination of a grid's axes is a workload",
    "workload_lists": "file with named lists of grids; workloads.yaml beside the experiment if left out",
    "steps": "measured steps of each worker, after warm-up",
    "duration": "measured time after warm-up, instead of steps",
    "until": "standard error of the mean step time, such as 3%, at which a sync run ends early; never if left out",
    "warmup_steps": "steps before the measured part; 5 if left out",
    "sampling_hz": "samples a second, 1 to 1000; 100 if left out",
    "capture": "headers: also record the headers of all packets of the data link of each host; nothing if left out",
    "cores_per_host": "fixed share of the processors for each host of a lab, such as 0.45; none if left out",
    "threads": "intra-op threads of a task; the framework's choice if left out",
    "network": (
        f"condition of the data link, {{{', '.join(NETWORK_AXES)}}}; a list in any of them, or of them, is a sweep"
    ),
    "repetitions": "how often each run is done; 1 if left out",
    "seed": "1 if left out; repetition r of a run uses seed + r",
    "timeouts": "{start, step, run, stop}: how long each may take; 2min, 2min, duration + 1h, 20s if left out",
    "retries": "how often a failed run is tried again; 1 if left out",
    "retry_wait": "pause before a run is tried again; 5s if left out",
}
MAX_RUNS = MAX_COMBINATIONS

MAPPING = "<mapping>"
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limits of the parts of a run, in seconds."""

    start_s: float = 120.0  # from the first process to the first step of the last worker
    step_s: float = 120.0  # one training step
    run_s: float | None = None  # the whole run; None for its duration plus an hour
    stop_s: float = 20.0  # from the request to end a task to its end


class Part(NamedTuple):
    """Runs of an experiment: each workload on each setting under each condition."""

    settings: tuple[Setting, ...]
    workloads: tuple[Workload, ...]
    networks: tuple[NetworkCondition, ...]

    @property
    def runs(self) -> int:
        """How many runs it has in a repetition."""
        return len(self.settings) * len(self.workloads) * len(self.networks)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A checked experiment file."""

    name: str
    source: str
    parts: tuple[Part, ...]
    """One, unless grids have settings or conditions of their own."""
    inventory: Inventory
    policy: Policy
    measurement: Measurement
    repetitions: int
    seed: int
    timeouts: Timeouts
    retries: int
    retry_wait_s: float
    cores_per_host: float | None = None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Of all runs, each once."""
        return _each_once(part.settings for part in self.parts)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Of all runs, each once."""
        return _each_once(part.workloads for part in self.parts)

    @property
    def networks(self) -> tuple[NetworkCondition, ...]:
        """Of all runs, each once."""
        return _each_once(part.networks for part in self.parts)


def _each_once(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(groups)))


def load_experiment(source: Path | Mapping[str, Any], default_hosts: str = DEFAULT) -> Experiment:
    """Reads an experiment file, or its content with file names relative to the current folder. Raises FileFaults.

    `default_hosts` is the backend of an experiment without the key `hosts`.
    """
    faults = Faults()
    if isinstance(source, Mapping):
        path = Path(MAPPING)
        root: At | None = At(node_of(source), "", MAPPING, faults)
    else:
        path = source
        root = open_document(path, str(path), faults)
    if root is None or not isinstance(root.value, dict):
        if root is not None:
            root.fault(
                f"expected an experiment (a mapping with {', '.join(list(KEYS)[:3])}, ...), got {shown(root.value)}"
            )
        raise FileFaults(list(faults.found))
    experiment = _read(root, path, default_hosts)
    faults.raise_if_any()
    return experiment


def _read(root: At, path: Path, default_hosts: str) -> Experiment:
    keys = root.keys(KEYS, required=("setting", "workloads"))
    settings = keys["setting"].many(Setting.parse) if "setting" in keys else ()
    folder = path.parent
    defaults = (
        read_axes(keys["defaults"].keys([axis for axis in AXES if axis != "model"])) if "defaults" in keys else {}
    )
    networks = _networks(keys["network"]) if "network" in keys else (NetworkCondition(),)
    reader = WorkloadReader(folder, defaults, keys.get("workload_lists"))
    grids = reader.read(keys["workloads"]) if "workloads" in keys else []
    experiment = Experiment(
        name=_name(root, keys.get("name"), path),
        source=str(path),
        parts=_parts(grids, settings, networks),
        inventory=read_hosts(keys["hosts"], folder) if "hosts" in keys else Inventory(kind=default_hosts),
        policy=_policy(keys["placement"]) if "placement" in keys else Policy(),
        measurement=_measurement(root, keys),
        repetitions=keys["repetitions"].one(integer(1, 1000), 1) if "repetitions" in keys else 1,
        seed=keys["seed"].one(integer(0), 1) if "seed" in keys else 1,
        timeouts=_timeouts(keys["timeouts"]) if "timeouts" in keys else Timeouts(),
        retries=keys["retries"].one(integer(0, 100), 1) if "retries" in keys else 1,
        retry_wait_s=keys["retry_wait"].one(duration_s, 5.0) if "retry_wait" in keys else 5.0,
        cores_per_host=keys["cores_per_host"].one(number(0.05, 4096), None) if "cores_per_host" in keys else None,
    )
    if "workloads" in keys and not experiment.workloads and not root.faults.found:
        keys["workloads"].fault("every combination is excluded; no workload is left")
    _check_together(experiment, root, keys)
    for own, found in grids:
        _check_grid(experiment, {**keys, **own}, _parts([(own, found)], settings, networks))
    return experiment


def _parts(
    grids: Sequence[tuple[Mapping[str, At], Found]],
    settings: tuple[Setting, ...],
    networks: tuple[NetworkCondition, ...],
) -> tuple[Part, ...]:
    """Grids with the same settings and conditions are one part. `settings` and `networks` are those of the others."""
    found: dict[tuple[tuple[Setting, ...], tuple[NetworkCondition, ...]], Found] = {}
    for own, workloads in grids:
        where = own["setting"].many(Setting.parse) if "setting" in own else settings
        under = _networks(own["network"]) if "network" in own else networks
        found.setdefault((where, under), {}).update(workloads)
    return tuple(Part(where, tuple(workloads), under) for (where, under), workloads in found.items())


def _name(root: At, at: At | None, path: Path) -> str:
    def safe(value: object) -> str:
        value = str(value) if type(value) is int else value  # name: 2026
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ExpectedError("letters, digits, dots, dashes and underscores, at most 64, as a folder name")
        return value

    if at is None and not _NAME.fullmatch(path.stem):
        root.fault(f"the file's name {path.stem!r} cannot be a folder name; give the experiment a name: key")
    return at.one(safe, "") if at else path.stem


def _policy(at: At) -> Policy:
    if not isinstance(at.value, dict):
        return Policy(kind=at.one(choice("placement", (PACKED, SPREAD)), PACKED))
    keys = at.keys((SPREAD, EXPLICIT))
    if len(at.value) != 1:
        at.fault("expected one of {spread: machines} and {explicit: {host: [tasks]}}")
    if SPREAD in keys:
        return Policy(kind=SPREAD, machines=keys[SPREAD].one(integer(2, 2048), 2))
    if EXPLICIT in keys:
        by_host = {host: entry.many(text) for host, entry in keys[EXPLICIT].entries().items()}
        return Policy(kind=EXPLICIT, explicit=by_host)
    return Policy()


def _networks(at: At) -> tuple[NetworkCondition, ...]:
    """A condition or a list of conditions; a list inside a condition gives every combination."""
    found: dict[NetworkCondition, None] = {}
    for entry in at.items() if isinstance(at.value, list) else [at]:
        keys = entry.keys(NETWORK_AXES)
        axes = {field: keys[name].many(parse) for name, (field, parse) in NETWORK_AXES.items() if name in keys}
        if math.prod(map(len, axes.values())) + len(found) > MAX_RUNS:
            entry.fault(f"{math.prod(map(len, axes.values()))} conditions; an experiment has at most {MAX_RUNS} runs")
            continue
        for values in itertools.product(*axes.values()):
            found[NetworkCondition(**dict(zip(axes, values, strict=True)))] = None
    if at.value == []:
        at.fault("expected at least one condition, got an empty list")
    return tuple(found)


def _measurement(root: At, keys: dict[str, At]) -> Measurement:
    steps = keys["steps"].one(integer(1), 1) if "steps" in keys else None
    duration = keys["duration"].one(duration_s, 1.0) if "duration" in keys else None
    if steps is not None and duration is not None:
        keys["duration"].fault("a run is measured by steps or by duration, not both")
        duration = None
    if steps is None and duration is None:
        if isinstance(root.value, dict):
            root.fault("key 'steps' or 'duration' is missing")
        steps = 1
    until = keys["until"].one(percentage, 1.0) if "until" in keys else None
    if until == 0 or (until is not None and "steps" not in keys):
        keys["until"].fault("expected a share above 0, beside steps, which are the most of a run")
        until = None
    return Measurement(
        steps=steps,
        until_pct=until,
        duration_s=duration,
        warmup_steps=keys["warmup_steps"].one(integer(0), 5) if "warmup_steps" in keys else 5,
        sampling_hz=keys["sampling_hz"].one(number(1, 1000), 100.0) if "sampling_hz" in keys else 100.0,
        threads=keys["threads"].one(integer(1, 1024), 1) if "threads" in keys else 0,
        capture=keys["capture"].one(choice("capture", tuple(CAPTURES)), None) if "capture" in keys else None,
    )


def _timeouts(at: At) -> Timeouts:
    keys = at.keys(("start", "step", "run", "stop"))
    return Timeouts(**{f"{name}_s": entry.one(duration_s, 1.0) for name, entry in keys.items()})


def _check_together(experiment: Experiment, root: At, keys: dict[str, At]) -> None:
    runs = sum(part.runs for part in experiment.parts) * experiment.repetitions
    if runs > MAX_RUNS:
        root.fault(f"{runs} runs; an experiment has at most {MAX_RUNS}")
        return
    duration, limit = experiment.measurement.duration_s, experiment.timeouts.run_s
    if duration is not None and limit is not None and limit <= duration:
        keys["timeouts"].fault(f"run: {limit:g} s is not enough for a duration of {duration:g} s")
    if experiment.measurement.capture is not None:
        _check_capture(experiment.inventory, keys["capture"])
    if experiment.cores_per_host is not None and experiment.inventory.kind != LAB:
        keys["cores_per_host"].fault("only the hosts of a lab have a share of its machine; leave it out, or hosts: lab")


def _check_grid(experiment: Experiment, keys: Mapping[str, At], parts: tuple[Part, ...]) -> None:
    """Checks settings against what runs on them. `keys` are those of the experiment, with those of the grid."""
    hosts_known = experiment.inventory.kind != INVENTORY or experiment.inventory.hosts
    for part in parts:
        strategies = sorted({workload.strategy for workload in part.workloads})
        backends = sorted({workload.backend for workload in part.workloads})
        for setting in part.settings:
            if hosts_known:  # else that fault was reported already
                try:
                    place(setting, experiment.policy, experiment.inventory)
                except BadInput as error:
                    (keys.get("placement") or keys["setting"]).fault(str(error))
            if "network" in keys:
                _check_network(setting, part.networks, keys["network"])
            for strategy in strategies:
                fault = STRATEGIES[strategy].fault(setting.servers, setting.workers)
                if fault is not None:
                    keys["setting"].fault(
                        f"{fault}; {setting} has {setting.servers} servers and {setting.workers} workers"
                    )
            if experiment.measurement.until_pct is not None:
                # The workers of the others agree on an end by a duration only.
                for strategy in strategies:
                    if not STRATEGIES[strategy].has_servers:
                        keys["until"].fault(f"runs with strategy: {strategy} cannot end early; leave it out")
            for backend in backends:
                fault = device_fault(backend, setting.device != CPU)
                if fault is not None:
                    keys["setting"].fault(f"{fault}, and {setting} has none")


def _check_capture(inventory: Inventory, at: At) -> None:
    if inventory.kind == SIMULATED:
        at.fault("simulated hosts send no packets")
    images = [host.name for host in inventory.hosts if host.image is not None]
    if images:
        at.fault(f"packets of containers are not recorded, and {', '.join(images)} run tasks in an image")


def _check_network(setting: Setting, conditions: tuple[NetworkCondition, ...], at: At) -> None:
    if setting.link_mbit is None:
        at.fault(f"{setting} is one machine: there is no link to condition")
        return
    fastest = max((condition.rate_mbit or 0.0 for condition in conditions), default=0.0)
    if fastest > setting.link_mbit:
        at.fault(f"rate {fastest:g}mbit is above the link of {setting}")
