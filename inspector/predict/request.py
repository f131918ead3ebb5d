"""Resolves a request to queries: a setting, the known features of a workload, and where its graph comes from."""

from __future__ import annotations

import hashlib
import itertools
import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from driple.contracts.errors import BadInput, UnknownName, shown
from driple.contracts.formats.dataset import NETWORK_COLUMNS
from driple.contracts.formats.graph import FRAMEWORK as FRAMEWORK_COLUMN
from driple.contracts.graph_makers import GRAPH_MAKERS, ONNX, TENSORFLOW, TORCH
from driple.contracts.run_spec import UPDATES, Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, STRATEGIES, TOPOLOGIES, Strategy, default_strategy
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, OPTIMISERS, SEQUENCE, find_model, ordinary_size
from driple.inspector.predict.graph_cache import (
    GraphRequest,
    GraphSource,
    ImportRequest,
    cache_folder,
    cached_graphs,
    cached_steps,
)
from driple.pipeline.graph.public import OpGraph, TrainingStep, read_graph, read_step

DEFAULT_BATCH = 32
ONNX_SUFFIX = ".onnx"
BLOCK = 2**20
"""Bytes that are read at a time: an ONNX file has all weights."""
_NO_LIMITS = {name: value for name, value in NETWORK_COLUMNS.items() if value is not None}
"""The link of the setting without limits of its own."""


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """The arguments of a prediction, None where not given. Exactly one of the first four names of models is given."""

    settings: tuple[Setting, ...]
    model: str | None = None
    """A model of the zoo."""
    graph: Path | None = None
    """A GraphDef, an ONNX file, or a graph file of driple."""
    code: str | None = None
    """`file.py:function`, which builds layers of tf_keras."""
    torch: str | None = None
    """`file.py:function`, which returns a torch module and its example inputs."""
    framework: str | None = None
    """That trains a model of the zoo."""
    strategy: str | None = None
    """By default that of the setting."""
    batch_sizes: tuple[int, ...] = ()
    updates: tuple[str, ...] = ()
    dataset: str | None = None
    size: int | None = None
    width: float | None = None
    optimiser: str | None = None
    sharding: str | None = None
    topology: str | None = None
    backend: str | None = None
    """Both of an all-reduce."""
    graph_device: str | None = None
    """The device in a graph file whose ops are used."""


class GraphFile(NamedTuple):
    """A graph file; an unknown first dimension of its shapes counts as the batch size."""

    path: Path
    device: str | None
    batch_size: int | None
    maker: str = TENSORFLOW
    """What built it, in GRAPH_MAKERS."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictionQuery:
    """One prediction to make."""

    setting: Setting
    workload: Mapping[str, Any]
    """Keys of examples.WORKLOAD."""
    source: GraphFile | GraphRequest | ImportRequest
    topology: str | None = None
    backend: str | None = None
    """Both of an all-reduce, if not those of the workload."""

    @property
    def known(self) -> Workload:
        """The workload. Of a graph file only some facts are known; a simulation needs no others."""
        if isinstance(self.source, GraphRequest):
            return self.source.workload
        names = {one.name for one in fields(Workload)}
        told = {name: value for name, value in self.workload.items() if name in names and value is not None}
        strategy = STRATEGIES[told.get("strategy", self.strategy)]
        if told.get("framework") not in strategy.frameworks:  # such as PyTorch and servers
            told["framework"] = strategy.default_framework
            told.pop("backend", None)
        told.setdefault("backend", strategy.frameworks[told["framework"]][0])
        return Workload(**{"model": self.source.path.stem, "dataset": "", "batch_size": 1, **told})

    @property
    def path(self) -> str:
        """The topology of an all-reduce, else the strategy."""
        return self.topology or self.known.path

    @property
    def maker(self) -> str:
        """What built the graph, in GRAPH_MAKERS."""
        return self.source.maker

    def with_batch_of(self, graph: OpGraph | TrainingStep) -> PredictionQuery:
        """The query with the batch size of its graph, where it was not known before."""
        if graph.batch_size is None or self.workload.get("batch_size") is not None:
            return self
        return replace(self, workload={**self.workload, "batch_size": graph.batch_size})

    @property
    def strategy(self) -> str:
        """That of the workload, unless the setting has no servers for it, or has some."""
        strategy = STRATEGIES.get(self.workload.get("strategy", ""))
        fits = strategy is not None and strategy.has_servers == bool(self.setting.servers)
        return strategy.name if strategy is not None and fits else default_strategy(self.setting.servers)


def request_of(
    model: str | None,
    *,
    setting: str | Sequence[str],
    batch_size: int | Sequence[int] | None = None,
    update: str | Sequence[str] | None = None,
    graph: str | Path | None = None,
    code: str | None = None,
    **others: Any,
) -> PredictionRequest:
    """A request from the arguments of `predict`: single values or several, duplicates once.

    Raises:
        BadInput: an unknown setting or update mode.
    """
    if not isinstance(model, str | None):
        raise BadInput(f"model: expected one name, got {shown(model)}")
    settings, sizes, updates = (
        _several("setting", setting),
        _several("batch_size", batch_size),
        _several("update", update),
    )
    if not settings:
        raise BadInput("setting: expected at least one")
    for name in updates:
        if name not in UPDATES:
            raise UnknownName("update", name, UPDATES)
    own = ":" in (model or "")  # `file.py:function`
    return PredictionRequest(
        settings=tuple(dict.fromkeys(map(Setting.parse, settings))),
        model=None if own else model,
        graph=None if graph is None else Path(graph),
        code=model if own else code,
        batch_sizes=tuple(dict.fromkeys(_whole("batch_size", size) for size in sizes)),
        updates=tuple(dict.fromkeys(updates)),
        **others,
    )


def _several(name: str, value: Any) -> tuple[Any, ...]:
    """One value, or a list, tuple or array of them; None for none."""
    if value is None:
        return ()
    if isinstance(value, str | numbers.Number):
        return (value,)
    try:
        found = tuple(value)
    except TypeError:
        raise BadInput(f"{name}: expected one value or several, got {shown(value)}") from None
    if not found:
        raise BadInput(f"{name}: expected at least one value")
    return found


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise BadInput(f"{name}: expected whole numbers, got {shown(value)}")
    return int(value)


def queries(asked: PredictionRequest) -> list[PredictionQuery]:
    """Every combination of setting, batch size and update mode.

    Raises:
        BadInput: an unknown name, an invalid size, or options that contradict a graph file.
    """
    if len([one for one in (asked.model, asked.graph, asked.code, asked.torch) if one is not None]) != 1:
        raise BadInput(
            "name one model: of the zoo, or a graph file (--graph), or your own code (--code or --torch file.py:build)"
        )
    if asked.framework is not None and asked.framework not in FRAMEWORKS:
        raise UnknownName("framework", asked.framework, tuple(FRAMEWORKS))
    if asked.framework is not None and asked.model is None:
        raise BadInput("--framework goes with the name of a model of the zoo; leave it out")
    for size in asked.batch_sizes:
        if size < 1:
            raise BadInput(f"batch size: expected 1 or more, got {size}")
    lists = {"dataset": tuple(DATASETS), "optimiser": OPTIMISERS, "topology": TOPOLOGIES, "backend": tuple(BACKENDS)}
    lists |= {"strategy": tuple(STRATEGIES)}
    for name, known in lists.items():
        value = getattr(asked, name)
        if value is not None and value not in known:
            raise UnknownName(name, value, known)
    if asked.size is not None and _whole("size", asked.size) < 1:
        raise BadInput(f"size: expected 1 or more, got {asked.size}")
    width: Any = asked.width
    if width is not None and not (isinstance(width, int | float) and 0 < width < float("inf")):
        raise BadInput(f"width: expected a number above 0, got {shown(asked.width)}")
    if asked.torch is not None:
        found = _of_torch(asked, asked.torch)
    elif asked.graph is not None:
        found = _of_onnx(asked, asked.graph) if asked.graph.suffix == ONNX_SUFFIX else _of_file(asked, asked.graph)
    else:
        found = _of_model(asked)
    return [_with_path(one, asked.topology, asked.backend) for one in found]


def _with_path(query: PredictionQuery, topology: str | None, backend: str | None) -> PredictionQuery:
    strategy = STRATEGIES[query.strategy]
    for name, value in (("topology", topology), ("backend", backend)):
        if value is not None and not strategy.has_topology:
            raise BadInput(
                f"{query.setting}: {name} does not apply to strategy {strategy.name}; an all-reduce has a setting"
                " without servers (p0)"
            )
    known = TOPOLOGIES if backend is None else BACKENDS[backend].topologies
    if topology is not None and topology not in known:
        raise BadInput(f"topology {topology} is not possible with {backend} (it has {', '.join(known)})")
    return replace(query, topology=topology, backend=backend)


def _of_model(asked: PredictionRequest) -> list[PredictionQuery]:
    code, _, sha256 = (None, None, None) if asked.code is None else _own_code("--code", asked.code)
    model = None if code is not None else find_model(asked.model or "")
    name = asked.code if model is None else model.name
    dataset = asked.dataset or (model.datasets[0] if model is not None else None)
    if dataset is None:
        raise BadInput(f"{shown(name)} is your own model: say with --dataset what it reads ({', '.join(DATASETS)})")
    if model is not None and dataset not in model.datasets:
        raise BadInput(f"{model.name} is trained on {', '.join(model.datasets)}, not on {dataset}")
    reads = DATASETS[dataset]
    size = asked.size or ordinary_size(model, reads)
    found = []
    for setting, batch_size, update in _combinations(asked, default_batch=DEFAULT_BATCH, default_update=UPDATES[0]):
        strategy = _strategy_of(asked, setting)
        framework = asked.framework or strategy.default_framework
        if framework not in strategy.frameworks and strategy.has_servers:
            raise BadInput(
                f"{setting}: {FRAMEWORKS[framework].title} has no parameter servers; name a setting without (p0)"
            )
        if framework not in strategy.frameworks:
            known = ", ".join(FRAMEWORKS[name].title for name in strategy.frameworks)
            raise BadInput(
                f"strategy {strategy.name}: {FRAMEWORKS[framework].title} does not have it (it is in {known})"
            )
        if model is not None and framework not in model.frameworks:
            raise BadInput(f"{model.name}: framework {framework} does not have it (it is in {model.frameworks[0]})")
        workload = Workload(
            model=str(name),
            dataset=dataset,
            batch_size=batch_size or 0,
            optimiser=asked.optimiser or "momentum",
            update=update or "",
            image_size=size if reads.kind == IMAGE else None,
            sequence_length=size if reads.kind == SEQUENCE else None,
            width=1.0 if asked.width is None else asked.width,
            strategy=strategy.name,
            sharding=asked.sharding or "balanced",
            code_sha256=sha256,
            framework=framework,
            backend=strategy.frameworks[framework][0],
        )
        source = GraphRequest(workload, setting, code)
        found.append(PredictionQuery(setting=setting, workload=_facts(workload), source=source))
    return found


def _own_code(option: str, text: str) -> tuple[Path, str, str]:
    """The file of `file.py:function`, the function, and the hash of the file."""
    path, _, function = text.rpartition(":")
    if not path or not function.isidentifier():
        raise BadInput(f"{option} {shown(text)}: expected file.py:function")
    return Path(path), function, _sha256(option, Path(path))


def _sha256(option: str, path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()
    except OSError as error:
        raise BadInput(f"{option} {path}: {error.strerror}") from None


def _of_torch(asked: PredictionRequest, text: str) -> list[PredictionQuery]:
    path, function, sha256 = _own_code("--torch", text)
    facts = {"model": f"{path.name}:{function}", "framework": TORCH, "code_sha256": sha256}
    return _imported(asked, TORCH, path, function, sha256, facts, DEFAULT_BATCH)


def _of_onnx(asked: PredictionRequest, path: Path) -> list[PredictionQuery]:
    if asked.graph_device is not None:
        raise BadInput(f"--graph-device {asked.graph_device}: an ONNX file names no devices; leave it out")
    return _imported(asked, ONNX, path, None, _sha256("--graph", path), {"model": path.name}, None)


def _imported(
    asked: PredictionRequest,
    maker: str,
    path: Path,
    function: str | None,
    sha256: str,
    facts: Mapping[str, Any],
    default_batch: int | None,
) -> list[PredictionQuery]:
    if asked.dataset is None and asked.width is not None and maker == ONNX:
        raise BadInput("--width does not apply to an ONNX file; leave it out")
    said = {**facts, **_said(asked)}
    names = {"dataset": asked.dataset, "size": asked.size, "width": asked.width}
    names |= {"optimiser": asked.optimiser, "sharding": asked.sharding}
    options = tuple((name, value) for name, value in names.items() if value is not None)
    found = []
    for setting, batch_size, update in _combinations(asked, default_batch, UPDATES[0]):
        own = {"batch_size": batch_size, "update": update, "strategy": _strategy_of(asked, setting).name, **said}
        workload = {"optimiser": Workload.optimiser, **{name: one for name, one in own.items() if one is not None}}
        source = ImportRequest(
            maker=maker,
            setting=setting,
            path=path,
            function=function,
            sha256=sha256,
            batch_size=batch_size,
            options=options,
        )
        found.append(PredictionQuery(setting=setting, workload={**_NO_LIMITS, **workload}, source=source))
    return found


def _said(asked: PredictionRequest) -> dict[str, Any]:
    """What the options say of a model whose file does not name its workload."""
    kind = DATASETS[asked.dataset].kind if asked.dataset else None
    if asked.size is not None and kind not in (IMAGE, SEQUENCE):
        raise BadInput("--size with --graph or --torch: say with --dataset whether it is of images or of sequences")
    size = asked.size or (ordinary_size(None, DATASETS[asked.dataset]) if asked.dataset else None)
    return {
        **{"dataset": asked.dataset, "optimiser": asked.optimiser, "width": asked.width, "sharding": asked.sharding},
        "image_size": size if kind == IMAGE else None,
        "sequence_length": size if kind == SEQUENCE else None,
    }


def _of_file(asked: PredictionRequest, path: Path) -> list[PredictionQuery]:
    saved, maker = _saved(path)
    if saved is None:
        said = _said(asked)
    else:
        said = {"dataset": asked.dataset, "optimiser": asked.optimiser, "width": asked.width}
        said |= {"sharding": asked.sharding}
    if saved is not None and asked.size is not None:
        said["image_size" if saved.get("image_size") else "sequence_length"] = asked.size
    found = []
    for setting, batch_size, update in _combinations(asked, None, None):
        own = {"batch_size": batch_size, "update": update, **said}
        if saved is not None:
            own = _agreed(path, saved, own)
        if asked.strategy is not None:
            own["strategy"] = _strategy_of(asked, setting).name
        workload: dict[str, Any] = {
            "strategy": default_strategy(setting.servers),
            "framework": maker if maker in FRAMEWORKS else None,
            **{name: value for name, value in own.items() if value is not None},
        }
        # Without a name it is unknown whether the model reads images.
        if saved is None and (asked.dataset or asked.size):
            workload["model"] = path.stem
        source = GraphFile(path=path, device=asked.graph_device, batch_size=batch_size, maker=maker)
        found.append(PredictionQuery(setting=setting, workload={**_NO_LIMITS, **workload}, source=source))
    return found


def _combinations(
    asked: PredictionRequest, default_batch: int | None, default_update: str | None
) -> list[tuple[Setting, int | None, str | None]]:
    """Those that the strategy of the setting offers.

    Raises:
        BadInput: it offers none of the update modes.
    """
    found: list[tuple[Setting, int | None, str | None]] = []
    for setting in asked.settings:
        strategy = _strategy_of(asked, setting)
        updates = [one for one in asked.updates if one in strategy.updates]
        if asked.updates and not updates:
            raise BadInput(
                f"{setting}: update {', '.join(asked.updates)} does not apply to strategy {strategy.name}, which is"
                f" always {', '.join(strategy.updates)}"
            )
        usual = default_update if default_update is None or default_update in strategy.updates else strategy.updates[0]
        found += itertools.product([setting], asked.batch_sizes or (default_batch,), updates or (usual,))
    return list(dict.fromkeys(found))


def _strategy_of(asked: PredictionRequest, setting: Setting) -> Strategy:
    """The strategy that is asked for, by default that of the setting. Raises BadInput if they do not go together."""
    strategy = STRATEGIES[asked.strategy or default_strategy(setting.servers)]
    fault = strategy.fault(setting.servers, setting.workers)
    if asked.strategy is not None and fault is not None:
        raise BadInput(f"{setting}: {fault}")
    return strategy


def _facts(workload: Workload) -> dict[str, Any]:
    known = MODELS.get(workload.model)
    names = (
        *("dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width", "strategy"),
        *("sharding", "framework", "code_sha256"),
    )
    return {
        "model": workload.model.rpartition("/")[2],
        "family": None if known is None else known.family,
        **{name: getattr(workload, name) for name in names},
        **_NO_LIMITS,
    }


def _saved(path: Path) -> tuple[dict[str, Any] | None, str]:
    """The workload in a graph file of driple, None for a GraphDef or without one; and what built the graph."""
    nothing = None, TENSORFLOW
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"PAR1":
                return nothing
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
            columns = [name for name in ("workload", FRAMEWORK_COLUMN) if name in file.schema_arrow.names]
            (row,) = file.read(columns=columns).to_pylist()
            value = None if row["workload"] is None else json.loads(row["workload"])
        except (pa.ArrowException, KeyError, ValueError, TypeError):
            return nothing  # not a graph: `read_graph` reports it
    except OSError:
        return nothing
    maker = row.get(FRAMEWORK_COLUMN)
    maker = maker if maker in GRAPH_MAKERS else TENSORFLOW  # earlier files do not say
    if not isinstance(value, dict):
        return None, maker
    known = MODELS.get(str(value.get("model")))
    return {**value, "family": None if known is None else known.family}, maker


def _agreed(path: Path, saved: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a graph file, checked against those that the user gave."""
    for name, value in said.items():
        if value is not None and saved.get(name) is not None and saved[name] != value:
            raise BadInput(
                f"{path}: a graph for {name} {saved[name]}, not {value}: leave that option out, or name the model, so "
                "that the right graph is made"
            )
    return {**saved, **{name: value for name, value in said.items() if value is not None}}


def graphs_of(
    asked: Sequence[PredictionQuery], *, fresh: bool = False, say: Callable[[str], None] | None = None
) -> list[OpGraph]:
    """The graph of each query, from its file, the cache, the stored graphs of the zoo, or TensorFlow.

    Args:
        asked: the queries.
        fresh: build graphs again that are cached or stored.
        say: receives a line before something that takes long.

    Raises:
        BadInput: a file cannot be read, has fixed shapes and several batch sizes are asked for, or a model cannot be
            built.
        RunFailed: building failed.
    """
    files = _read_files(asked)
    wanted = [one.source for one in asked if isinstance(one.source, GraphSource)]
    made = cached_graphs(wanted, cache_folder(), say or (lambda _: None), fresh=fresh)
    return [files[one.source] if isinstance(one.source, GraphFile) else made[one.source] for one in asked]


def steps_of(
    asked: Sequence[PredictionQuery], *, fresh: bool = False, say: Callable[[str], None] | None = None
) -> list[TrainingStep]:
    """The training step of each query, for a simulation; arguments and errors as `graphs_of`."""
    _read_files(asked)  # raises for fixed shapes and several batch sizes
    files = {one.source: _step_of(one, one.source) for one in asked if isinstance(one.source, GraphFile)}
    wanted = [one.source for one in asked if isinstance(one.source, GraphSource)]
    made = cached_steps(wanted, cache_folder(), say or (lambda _: None), fresh=fresh)
    return [files[one.source] if isinstance(one.source, GraphFile) else made[one.source] for one in asked]


def _step_of(query: PredictionQuery, file: GraphFile) -> TrainingStep:
    if file.device is not None:
        raise BadInput(f"--graph-device {file.device}: a simulation takes the ops of the worker; leave it out")
    length = query.workload.get("sequence_length") or 1
    return read_step(file.path, loop_length=length, batch_size=file.batch_size)


def _read_files(asked: Sequence[PredictionQuery]) -> dict[GraphFile, OpGraph]:
    """The graphs of the queries that name files, each read once."""
    sources = dict.fromkeys(one.source for one in asked if isinstance(one.source, GraphFile))
    found = {one: read_graph(one.path, device=one.device, batch_size=one.batch_size) for one in sources}
    for (one, graph), (other, another) in itertools.combinations(found.items(), 2):
        if one.batch_size != other.batch_size and np.array_equal(graph.bytes, another.bytes):
            raise BadInput(
                f"{one.path}: its shapes are fixed, so it is a graph of one batch size, and {one.batch_size} and "
                f"{other.batch_size} were asked for: ask for one, or write it with an unknown first dimension"
            )
    return found
