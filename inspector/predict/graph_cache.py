"""Graphs that are not files yet: stored with driple, or built in another process and cached.

The cache is $XDG_CACHE_HOME/driple/graphs (~/.cache/driple/graphs), under a name that has a hash of everything that
makes the graph. The folder may be deleted at any time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.graph_makers import GRAPH_MAKERS
from driple.contracts.json_values import content_hash, to_plain
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, Setting
from driple.pipeline.graph.public import (
    OpGraph,
    TrainingStep,
    read_graph,
    read_step,
    stored_graph,
    stored_step,
)

KEY_VERSION = 2
AT_ONCE = 4
"""Processes that build graphs; each takes up to 1 GB."""

Say = Callable[[str], None]
T = TypeVar("T")


class GraphSource(ABC):
    """A graph by what makes it."""

    setting: Setting
    maker: str
    """In GRAPH_MAKERS."""

    @property
    @abstractmethod
    def label(self) -> str:
        """For people."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """All that makes the graph besides setting and versions, as JSON values."""

    @abstractmethod
    def command(self, out: Path) -> list[str]:
        """The command that builds it."""

    @property
    def loop_length(self) -> int:
        """How often an op of a loop runs."""
        return 1

    @property
    def key(self) -> str:
        """Equal for equal graphs.

        The kind of GPU and the network do not change a graph. The number of servers changes which server holds which
        variable, and so the bytes of the busiest one. The number of workers changes the graph of an all-reduce only.
        """
        made_by = {name: _version(name) for name in ("driple", *GRAPH_MAKERS[self.maker].modules)}
        servers, workers = self.setting.servers, self.setting.workers
        setting = {"gpu": self.setting.device != CPU, "servers": servers, "workers": None if servers else workers}
        return content_hash({**self.identity, "setting": setting, "made_by": made_by}, KEY_VERSION, digits=20)

    @property
    def file_name(self) -> str:
        readable = "".join(c if c.isalnum() or c in "._-" else "_" for c in self.label)[:80]
        return f"{readable}-{self.key}.parquet"


@dataclass(frozen=True)
class GraphRequest(GraphSource):
    """The graph of a workload."""

    workload: Workload
    setting: Setting
    code: Path | None = None
    """The user's own file."""

    @property
    def maker(self) -> str:  # type: ignore[override]
        return self.workload.framework

    @property
    def label(self) -> str:
        return self.workload.label

    @property
    def loop_length(self) -> int:
        return self.workload.sequence_length or 1

    @property
    def identity(self) -> dict[str, Any]:
        workload = to_plain(self.workload)
        if self.code is not None:  # its hash is in the workload; its path does not matter
            workload["model"] = self.workload.model.rpartition(":")[2]
        return {"workload": workload}

    def command(self, out: Path) -> list[str]:
        workload = self.workload
        size = workload.image_size or workload.sequence_length
        return [
            *(sys.executable, "-m", "driple.workloads.cli", "graph"),
            *(f"--model={workload.model}", f"--setting={self.setting}", f"--out={out}"),
            *(f"--batch-size={workload.batch_size}", f"--dataset={workload.dataset}", f"--width={workload.width!r}"),
            *(f"--optimiser={workload.optimiser}", f"--update={workload.update}", f"--sharding={workload.sharding}"),
            *([] if size is None else [f"--size={size}"]),
            *([] if workload.framework == Workload.framework else [f"--framework={workload.framework}"]),
        ]


@dataclass(frozen=True, kw_only=True)
class ImportRequest(GraphSource):
    """The graph of a model in a file: a function that returns a torch module, or an ONNX file."""

    maker: str
    setting: Setting
    path: Path
    function: str | None
    sha256: str
    """Of the file."""
    batch_size: int | None
    """None for the one in the file."""
    options: tuple[tuple[str, str | int | float], ...]
    """Other options of the command that builds it, by name."""

    @property
    def label(self) -> str:
        name = self.path.name if self.function is None else f"{self.path.name}:{self.function}"
        return name if self.batch_size is None else f"{name}-b{self.batch_size}"

    @property
    def identity(self) -> dict[str, Any]:
        return {
            **{"maker": self.maker, "function": self.function, "sha256": self.sha256, "batch_size": self.batch_size},
            "options": dict(self.options),
        }

    def command(self, out: Path) -> list[str]:
        source = str(self.path) if self.function is None else f"{self.path}:{self.function}"
        return [
            *(sys.executable, "-m", "driple.workloads.cli", "graph"),
            *(f"--{self.maker}={source}", f"--setting={self.setting}", f"--out={out}"),
            *([] if self.batch_size is None else [f"--batch-size={self.batch_size}"]),
            *(f"--{name}={value}" for name, value in self.options),
        ]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the cache."""
    base = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "driple" / "graphs"  # noqa: PTH117


def cached_graphs(
    wanted: Iterable[GraphSource], folder: Path, say: Say, *, fresh: bool = False
) -> dict[GraphSource, OpGraph]:
    """The graphs: from the cache, stored with driple, or built now (`fresh`: always built).

    Raises:
        BadInput: what builds it is not installed, or a model cannot be built; one line.
        RunFailed: building failed otherwise.
    """
    kind = _Kind(
        read=lambda path, one: read_graph(path),
        stored=lambda one: stored_graph(one.workload, one.setting),
        needs=("igraph", "torch", "safetensors"),
    )
    return _cached(list(dict.fromkeys(wanted)), folder, say, kind, fresh)


def cached_steps(
    wanted: Iterable[GraphSource], folder: Path, say: Say, *, fresh: bool = False
) -> dict[GraphSource, TrainingStep]:
    """The training steps of such graphs, for a simulation. Raises as `cached_graphs`."""
    kind = _Kind(
        read=lambda path, one: read_step(path, loop_length=one.loop_length),
        stored=lambda one: stored_step(one.workload, one.setting),
        needs=(),
    )
    return _cached(list(dict.fromkeys(wanted)), folder, say, kind, fresh)


@dataclass(frozen=True)
class _Kind(Generic[T]):
    """What is made from the file of a graph."""

    read: Callable[[Path, GraphSource], T]
    stored: Callable[[GraphRequest], T | None]
    """From the graphs of the zoo that are stored with driple."""
    needs: tuple[str, ...]
    """Modules that a prediction needs after this."""


def _cached(every: Sequence[GraphSource], folder: Path, say: Say, kind: _Kind[T], fresh: bool) -> dict[GraphSource, T]:
    found: dict[GraphSource, T] = {}
    if not fresh:
        found = {one: graph for one in every if (graph := _kept(folder / one.file_name, one, kind)) is not None}
        others = [one for one in every if one not in found and isinstance(one, GraphRequest) and one.code is None]
        found |= {one: graph for one in others if (graph := kind.stored(one)) is not None}
    missing = {one.key: one for one in every if one not in found}
    if missing:
        made = _make(missing, folder, say, kind)
        found |= {one: made[one.key] for one in every if one not in found}
    return found


def _kept(path: Path, wanted: GraphSource, kind: _Kind[T]) -> T | None:
    with suppress(BadInput):  # missing or damaged: it is built again
        return kind.read(path, wanted)
    return None


def _make(missing: Mapping[str, GraphSource], folder: Path, say: Say, kind: _Kind[T]) -> dict[str, T]:
    require(*kind.needs)
    for one in missing.values():
        _need_maker(one)
    names = ", ".join(one.label for one in missing.values())
    titles = " and ".join(dict.fromkeys(GRAPH_MAKERS[one.maker].title for one in missing.values()))
    say(f"making {len(missing)} graph{'s' if len(missing) > 1 else ''} with {titles}, kept for the next time: {names}")
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1, len(missing))) as pool:
        made = pool.map(lambda one: _make_one(one, folder, say, kind), missing.values())
        return dict(zip(missing, made, strict=True))


def _make_one(wanted: GraphSource, folder: Path, say: Say, kind: _Kind[T]) -> T:
    keep = True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=".making-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        say(f"{folder}: {error.strerror}; the graph is not kept")
        beside = tempfile.TemporaryDirectory(prefix="driple-", ignore_cleanup_errors=True)
        keep = False
    with beside:
        out = Path(beside.name) / wanted.file_name
        _run(wanted, out)
        graph = kind.read(out, wanted)
        if keep:
            out.replace(folder / out.name)
        return graph


def _run(wanted: GraphSource, out: Path) -> None:
    done = subprocess.run(
        wanted.command(out), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
    )
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last = said[-1] if said else f"ended with {done.returncode} and said nothing"
    if done.returncode == BadInput.exit_code:
        raise BadInput(last)
    raise RunFailed(f"the graph of {wanted.label} could not be made: {last}")


def _need_maker(wanted: GraphSource) -> None:
    maker = GRAPH_MAKERS[wanted.maker]
    for name in maker.modules:
        if find_spec(name) is None:
            raise BadInput(
                f"{wanted.label}: its graph is made with {name}, which is not installed here: "
                f"pip install 'driple[{maker.extra}]', or give a graph file with --graph"
            )


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version(name)
    return None
