"""The specification of a run and of a job, to and from JSON, and the hash that identifies a run.

A RunSpec is independent of hosts: the same RunSpec is the same run anywhere. A JobSpec is a RunSpec with addresses. The
controller writes it, and every task of the job reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Collection, Dict, Optional, Tuple, Type, TypeVar

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.packets import CAPTURES
from driple.contracts.json_values import content_hash, from_plain, to_plain
from driple.contracts.setting import Setting
from driple.contracts.sharding import BALANCED, ROUND_ROBIN
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, STRATEGIES, TOPOLOGIES, combination_fault
from driple.contracts.strategy import UPDATES as UPDATES
from driple.contracts.zoo import MODELS

IDENTITY_VERSION = 1  # part of the hash of a run. Increase it when a default below changes its meaning

SHARDINGS: Tuple[str, ...] = (BALANCED, ROUND_ROBIN)


LEAST_STEPS = 6
"""Measured steps of a run that ends once its step times are known well enough: the fewest for a standard error."""

MAX_TIMEOUT_S = 30 * 24 * 3600.0

T = TypeVar("T")


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise BadInput(f"{name}: expected {least} or more, got {value:g}")


@dataclass(frozen=True)
class Workload:
    """The training workload. Every size is explicit, so that equal workloads have equal identities."""

    model: str  # a name of the zoo, or `file.py:function` for the user's own
    dataset: str
    batch_size: int  # examples per worker and step
    optimiser: str = "momentum"
    update: str = "sync"  # `sync` or `async`
    image_size: Optional[int] = None  # side in pixels; None if the input is not images
    sequence_length: Optional[int] = None  # tokens; None if the input is not sequences
    width: float = 1.0  # multiplier of channels or hidden units
    strategy: str = "ps"  # `ps` (parameter servers), `allreduce` or `pair_averaging`
    sharding: str = "balanced"
    """Assignment of variables to parameter servers: `balanced` by size, or `round_robin` as in the paper."""
    framework: str = "tensorflow"
    code_sha256: Optional[str] = None  # hash of the user's model file: changed code is another workload
    backend: str = "grpc"  # what carries the tensors
    topology: str = "ring"  # path of the gradients of an all-reduce; `ring` also where there is none

    def __post_init__(self) -> None:
        closed: Dict[str, Collection[str]] = {
            **{"update": UPDATES, "strategy": STRATEGIES, "sharding": SHARDINGS},
            **{"framework": FRAMEWORKS, "backend": BACKENDS, "topology": TOPOLOGIES},
        }
        for name, known in closed.items():
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), tuple(known))
        fault = combination_fault(self.strategy, self.framework, self.backend, self.topology)
        if fault is not None:
            raise BadInput(fault)

    @property
    def path(self) -> str:
        """The topology of an all-reduce, else the strategy: it says who sends to whom."""
        return self.topology if STRATEGIES[self.strategy].has_topology else self.strategy

    @property
    def label(self) -> str:
        """A short, readable name; not unique."""
        parts = [self.model.rpartition("/")[2], f"b{self.batch_size}"]
        if self.width != 1.0:
            parts.append(f"x{self.width:g}")
        size = self.image_size or self.sequence_length
        if size:
            parts.append(f"s{size}")
        known = MODELS.get(self.model)
        if known is None or self.dataset != known.datasets[0]:
            parts.append(self.dataset)
        parts += [self.optimiser, self.update if len(STRATEGIES[self.strategy].updates) > 1 else self.strategy]
        unusual = {"sharding": "balanced", "framework": "tensorflow", "topology": "ring"}
        unusual["backend"] = STRATEGIES[self.strategy].frameworks[self.framework][0]
        parts += [getattr(self, name) for name, usual in unusual.items() if getattr(self, name) != usual]
        return "-".join(parts)


CONGESTION_CONTROLS: Tuple[str, ...] = ("cubic", "reno", "bbr")
"""bbr hides loss: at 2 % a link of 1 Gbit/s still carries 0.94 Gbit/s with it, and 0.14 Gbit/s with cubic."""

_UNITS = ("mbit", "ms", "pct")


def _condition(default: Any, shown: str, column: str, kind: str = "real", choices: Tuple[str, ...] = ()) -> Any:
    """A field of NetworkCondition: its value without a condition, its form in a label, its column and its choices."""
    return field(default=default, metadata={"shown": shown, "column": column, "kind": kind, "choices": choices})


@dataclass(frozen=True)
class NetworkCondition:
    """The condition of the data link of every host of the run.

    The name of a field ends in its unit: `mbit`, `ms` or `pct`, or it has choices. The key in experiments, the label
    and the column of datasets follow from the field. It has a default, so that runs without it keep their identity.
    """

    # Limit in Mbit/s; None for the rate of the setting.
    rate_mbit: Optional[float] = _condition(
        None, "{:g}mbit", "limit that was asked for; null for the setting's own link"
    )
    # Added to outgoing packets of each host.
    delay_ms: float = _condition(0.0, "{:g}ms", "delay that was added")
    # Share of outgoing packets of each host that are dropped, in percent.
    loss_pct: float = _condition(0.0, "{:g}%", "loss that was asked for")
    # Of TCP; None for the default of the hosts (`network_done_by` of run.json says which one was used).
    congestion: Optional[str] = _condition(
        None, "{}", "congestion control of TCP that was asked for", "text", CONGESTION_CONTROLS
    )

    @property
    def parts(self) -> Dict[str, str]:
        """The parts that were asked for as text, by their key in experiments: `{"loss": "0.5%"}`."""
        values = {one: getattr(self, one.name) for one in fields(self)}
        return {
            condition_key(one.name): one.metadata["shown"].format(value)
            for one, value in values.items()
            if value != one.default
        }

    @property
    def label(self) -> str:
        """For tables; empty without a condition."""
        return " ".join(self.parts.values())


def condition_key(name: str) -> str:
    """The key in experiments of a field of NetworkCondition: its name without the unit."""
    return name.rpartition("_")[0] if name.rpartition("_")[2] in _UNITS else name


@dataclass(frozen=True)
class Measurement:
    """Length and sampling rate of a run. Exactly one of `steps` and `duration_s` is set."""

    steps: Optional[int] = None  # measured steps of each worker, after warm-up
    duration_s: Optional[float] = None  # measured time, after warm-up
    warmup_steps: int = 5  # steps before the measured part, which the pipeline ignores
    sampling_hz: float = 100.0
    threads: int = 0  # intra-op threads of a task; 0 for the default of the framework
    capture: Optional[str] = None  # `headers`: packets are recorded too; None: they are not
    until_pct: Optional[float] = None
    """Ends earlier than after `steps`: once the standard error of the mean step time is at most this share of it."""

    def __post_init__(self) -> None:
        if self.capture is not None and self.capture not in CAPTURES:
            raise UnknownName("capture", self.capture, tuple(CAPTURES))
        if (self.steps is None) == (self.duration_s is None):
            raise BadInput("exactly one of steps and duration_s must be set")
        _at_least(1, steps=1 if self.steps is None else self.steps, sampling_hz=self.sampling_hz)
        _at_least(0, warmup_steps=self.warmup_steps, threads=self.threads)
        if self.until_pct is not None and (self.steps is None or not self.until_pct > 0):
            raise BadInput("until_pct: expected more than 0, with steps as the most")
        if self.duration_s is not None and not self.duration_s > 0:
            raise BadInput(f"duration_s: expected more than 0, got {self.duration_s:g}")

    @property
    def least_steps(self) -> int:
        """The measured steps that every worker of a successful run has."""
        most = self.steps or 1
        return most if self.until_pct is None else min(most, LEAST_STEPS)


class _Json:
    def to_json(self) -> Any:
        """Plain values for `json.dumps`."""
        return to_plain(self)

    @classmethod
    def from_json(cls: Type[T], value: Any) -> T:
        """The reverse of `to_json`; raises BadInput with the place of the fault."""
        return from_plain(cls, value)


@dataclass(frozen=True)
class RunSpec(_Json):
    """One workload on one setting, under one network condition, at one repetition."""

    setting: Setting
    workload: Workload
    measurement: Measurement
    together: Tuple[Tuple[str, ...], ...]
    """Groups of tasks that share a machine, in the order of `Setting.tasks`. Host names are not part of a run."""
    network: NetworkCondition = field(default_factory=NetworkCondition)
    seed: int = 1
    repetition: int = 0
    cores_per_host: Optional[float] = None
    """Fixed share of the processors of the machine that each host has; None: all hosts of a machine share them."""

    def __post_init__(self) -> None:
        _at_least(0, seed=self.seed, repetition=self.repetition)
        if self.cores_per_host is not None and not self.cores_per_host > 0:
            raise BadInput(f"cores_per_host: expected more than 0, got {self.cores_per_host:g}")
        placed = [task for group in self.together for task in group]
        tasks = self.setting.tasks
        if len(placed) != len(tasks) or set(placed) != set(tasks):
            raise BadInput(f"together: expected each task of {self.setting} exactly once")

    @property
    def id(self) -> str:
        """The identity: a readable prefix and the content hash. Safe as a folder name."""
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", f"{self.setting}-{self.workload.label}")[:80].strip("-.")
        return f"{readable}-{content_hash(self, IDENTITY_VERSION)}"


@dataclass(frozen=True)
class TaskSpec:
    """Place of a task of a job."""

    task: str  # such as `worker:1`
    host: str  # name of the host in the inventory
    address: str  # `address:port` on the data network
    gpu: Optional[int] = None  # index of its GPU, if any
    data_dir: Optional[str] = None  # folder of the dataset on that host; None for synthetic input


@dataclass(frozen=True)
class JobSpec(_Json):
    """A run with addresses: the input of every task of the job."""

    run: RunSpec
    tasks: Tuple[TaskSpec, ...]  # in the order of `Setting.tasks`
    start_timeout_s: float = 120.0  # how long a task waits for the others
    step_timeout_s: float = 120.0  # time limit of a step
    code_path: Optional[str] = None  # the user's model file on the host
    go_path: Optional[str] = None
    """A file on the host that appears when all tasks are sampled. Workers that start quickly wait for it."""
    share_path: Optional[str] = None
    """A file on the host that appears when the tasks have the share of their host. Workers wait for it once they are
    ready: outside of the share they start faster. None without a share."""

    def __post_init__(self) -> None:
        if [task.task for task in self.tasks] != list(self.run.setting.tasks):
            raise BadInput(f"tasks: expected {', '.join(self.run.setting.tasks)} in this order")
        if len({task.address for task in self.tasks}) < len(self.tasks):
            raise BadInput("tasks: two of them have the same address and port")
        for name in ("start_timeout_s", "step_timeout_s"):
            if not 0 < getattr(self, name) <= MAX_TIMEOUT_S:
                raise BadInput(f"{name}: expected more than 0 and at most {MAX_TIMEOUT_S:g}")

    def task(self, name: str) -> TaskSpec:
        for task in self.tasks:
            if task.task == name:
                return task
        raise BadInput(f"no task {name!r} in this job (it has {', '.join(t.task for t in self.tasks)})")

    def addresses(self, role: str) -> Tuple[str, ...]:
        return tuple(task.address for task in self.tasks if task.task.startswith(role + ":"))
