"""Training strategies, frameworks, backends and topologies: the facts that other packages need.

The code is in workloads/. A new strategy or framework is an entry here and a file in workloads/strategies or
workloads/frameworks, with a line in its registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

SERVER = "ps"
WORKER = "worker"
UPDATES: Tuple[str, ...] = ("sync", "async")

RING = "ring"
STAR = "star"
TREE = "tree"
BINARY_TREE_STAR = "binary_tree_star"
CLIQUE = "clique"
TOPOLOGIES: Tuple[str, ...] = (RING, STAR, TREE, BINARY_TREE_STAR, CLIQUE)
"""Paths of the gradients of an all-reduce. traffic_formulas.py has their trees and their traffic."""


@dataclass(frozen=True)
class Strategy:
    """How the tasks of a job share their gradients."""

    name: str
    roles: Tuple[str, ...]
    updates: Tuple[str, ...]  # update modes that it offers
    frameworks: Mapping[str, Tuple[str, ...]]
    """Frameworks in which it is available, each with the backends that it can use there, the default first."""
    has_topology: bool = False
    has_simulation: bool = True
    least_workers: int = 1

    @property
    def has_servers(self) -> bool:
        """Whether it needs parameter servers; else it has none."""
        return SERVER in self.roles

    @property
    def default_framework(self) -> str:
        return next(iter(self.frameworks))

    def fault(self, servers: int, workers: Optional[int] = None) -> Optional[str]:
        """Why it cannot run with these numbers of servers and workers (None: any); None if it can."""
        if self.has_servers != bool(servers):
            return f"strategy {self.name} needs {'at least one server' if self.has_servers else 'no servers (p0)'}"
        if workers is not None and workers < self.least_workers:
            return f"strategy {self.name} needs at least {self.least_workers} workers"
        return None


@dataclass(frozen=True)
class Framework:
    """A deep-learning framework."""

    name: str
    title: str
    """As it is written in messages."""
    packages: Mapping[str, Tuple[str, ...]]
    """Modules that a host must have to train with it, each with the distributions that can contain it."""
    extra: str
    """The extra of driple that installs them."""
    topologies: Tuple[str, ...]
    """Of its all-reduce."""
    graph_since_start: bool
    """Whether all its runs have a graph; else those of earlier releases have none."""
    one_port: bool
    """Whether all connections of a task go to the port of its address. A container publishes only that port."""


@dataclass(frozen=True)
class Backend:
    """What carries the tensors between the tasks."""

    name: str
    needs_gpu: bool = False
    topologies: Tuple[str, ...] = TOPOLOGIES
    """Of the all-reduce, as far as the framework has them too."""
    packages: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    """Modules that a host must have besides those of the framework, as there."""
    extra: str = ""
    """The extra of driple that installs them."""
    recipe: str = ""
    """The page that says how to install them, if no extra can."""
    library: str = ""
    """What trains in place of the framework's own data parallelism."""
    one_port: bool = True
    """Whether it opens no ports besides those of the framework."""


FRAMEWORKS: Dict[str, Framework] = {
    framework.name: framework
    for framework in (
        Framework(
            "tensorflow",
            "TensorFlow",
            {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"), "tf_keras": ("tf-keras",)},
            extra="workloads",
            topologies=(RING,),
            graph_since_start=True,
            one_port=True,
        ),
        Framework(
            "torch",
            "PyTorch",
            {"torch": ("torch",)},
            extra="workloads-torch",
            topologies=TOPOLOGIES,
            graph_since_start=False,
            one_port=False,
        ),
    )
}

GRPC = "grpc"
GLOO = "gloo"
MPI = "mpi"
NCCL = "nccl"
HOROVOD = "horovod"
HOROVOD_GLOO = "horovod_gloo"
HOROVOD_MPI = "horovod_mpi"


def _horovod(name: str) -> Backend:
    return Backend(
        name,
        topologies=(RING,),
        packages={"horovod": ("horovod",)},
        recipe="docs/guides/horovod.md",
        library=HOROVOD,
        one_port=False,
    )


BACKENDS: Dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(GRPC),
        Backend(GLOO),
        Backend(MPI, packages={"mpi4py": ("mpi4py",)}, extra="mpi"),
        # Without GPUs TensorFlow takes its ring over gRPC instead, and does not say so.
        Backend(NCCL, needs_gpu=True, topologies=(RING,)),
        _horovod(HOROVOD_GLOO),
        _horovod(HOROVOD_MPI),
    )
}

STRATEGIES: Dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("ps", (SERVER, WORKER), updates=UPDATES, frameworks={"tensorflow": (GRPC,)}),
        Strategy(
            "allreduce",
            (WORKER,),
            updates=("sync",),
            frameworks={
                "tensorflow": (GRPC, NCCL, HOROVOD_GLOO, HOROVOD_MPI),
                "torch": (GLOO, MPI, NCCL, HOROVOD_GLOO, HOROVOD_MPI),
            },
            has_topology=True,
        ),
        Strategy(
            "pair_averaging",
            (WORKER,),
            updates=("async",),
            frameworks={"torch": (GLOO,)},
            least_workers=2,
        ),
    )
}


def default_strategy(servers: int) -> str:
    """The strategy of a setting with this number of parameter servers, if none is named."""
    return next(name for name, strategy in STRATEGIES.items() if strategy.has_servers == bool(servers))


def combination_fault(strategy: str, framework: str, backend: str, topology: str) -> Optional[str]:
    """Why these do not go together; None if they do. Each of them is a known name."""
    backends = STRATEGIES[strategy].frameworks.get(framework)
    if backends is None:
        known = ", ".join(name for name, entry in STRATEGIES.items() if framework in entry.frameworks)
        return f"framework {framework} has no strategy {strategy} (it has {known})"
    if backend not in backends:
        return f"strategy {strategy} of framework {framework} has no backend {backend} (it has {', '.join(backends)})"
    if topology == RING:  # also the value where there is no all-reduce
        return None
    if not STRATEGIES[strategy].has_topology:
        return f"topology does not apply to strategy {strategy}"
    for what, offered in ((framework, FRAMEWORKS[framework].topologies), (backend, BACKENDS[backend].topologies)):
        if topology not in offered:
            return f"topology {topology} is not possible with {what} (it has {', '.join(offered)})"
    return None


def device_fault(backend: str, on_gpus: bool) -> Optional[str]:
    """Why a backend cannot run on the devices of a setting; None if it can."""
    return f"backend {backend} needs GPUs" if BACKENDS[backend].needs_gpu and not on_gpus else None
