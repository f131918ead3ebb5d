"""The workloads of an experiment: grids, named lists of grids, include and exclude.

defaults: {optimiser: momentum}       # for every grid; a size applies to models that have it
workloads:
  - use: paper-cifar10                # a list of the shared file; axes beside it replace the list's
    batch_size: [32, 64]
  - model: [resnet50, vgg16]          # every combination of the axes
    batch_size: [32, 64]
    exclude: [{model: vgg16, batch_size: 64}]
    include: [{model: vgg16, batch_size: 16}]   # the same grid with these axes replaced
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, UnknownName, shown, unknown
from driple.contracts.quantity import ExpectedError
from driple.contracts.run_spec import SHARDINGS, UPDATES, Workload
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, STRATEGIES, TOPOLOGIES, combination_fault
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, OPTIMISERS, OWN_MODELS, SEQUENCE, ordinary_size
from driple.orchestrator.config.validation import (
    At,
    choice,
    existing_file,
    integer,
    number,
    open_document,
    text,
)

MAX_COMBINATIONS = 100_000
LISTS_FILE = "workloads.yaml"

_OWN_MODEL = re.compile(r"(?P<file>[^\s:]+\.py):(?P<function>[A-Za-z_]\w*)", re.ASCII)


def model_name(value: object) -> str:
    """A model of the zoo, or `file.py:function`."""
    if not isinstance(value, str):
        raise ExpectedError("a model of the zoo or file.py:function")
    if value not in MODELS and not _OWN_MODEL.fullmatch(value):
        raise UnknownName("model", value, (*MODELS, "file.py:function"))
    return value


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid."""

    parse: Callable[[Any], Any]
    meaning: str


AXES: dict[str, Axis] = {
    "model": Axis(model_name, "a model of the zoo (driple-run --list-models) or file.py:function"),
    "dataset": Axis(choice("dataset", tuple(DATASETS)), "what it reads; the model's ordinary dataset if left out"),
    "batch_size": Axis(integer(1), "examples a worker takes in a step; 32 if left out"),
    "optimiser": Axis(choice("optimiser", OPTIMISERS), "momentum if left out"),
    "update": Axis(choice("update mode", UPDATES), "sync if left out"),
    "strategy": Axis(choice("strategy", tuple(STRATEGIES)), "ps if left out"),
    "framework": Axis(choice("framework", tuple(FRAMEWORKS)), "that of the strategy if left out: tensorflow for ps"),
    "backend": Axis(choice("backend", tuple(BACKENDS)), "what carries tensors; the framework's usual one if left out"),
    "topology": Axis(choice("topology", TOPOLOGIES), "path of gradients of an all-reduce; ring if left out"),
    "sharding": Axis(choice("sharding", SHARDINGS), "how variables go to servers; balanced if left out"),
    "image_size": Axis(integer(8, 4096), "side in pixels; the model's ordinary size if left out"),
    "sequence_length": Axis(integer(2, 65536), "tokens; the dataset's ordinary length if left out"),
    "width": Axis(number(0.01, 64), "multiplier of channels or hidden units; 1 if left out"),
}
RUN_KEYS: dict[str, str] = {
    "setting": "setting of the runs of this grid, or a list; that of the experiment if left out",
    "network": "condition of the runs of this grid, as the key of the experiment, which it replaces",
}
"""Keys of a grid of an experiment that are not about its workloads. Grids of named lists do not have them."""
GRID_KEYS: dict[str, str] = {
    "use": "a named list of the shared workload file",
    "include": "more combinations: each entry is this grid with the given axes replaced",
    "exclude": "combinations to leave out: all that match every given axis",
    **{name: axis.meaning for name, axis in AXES.items()},
    **RUN_KEYS,
}
_SIZES = {IMAGE: "image_size", SEQUENCE: "sequence_length"}  # the axis of the input size, by kind of dataset


Values = dict[str, tuple[Any, ...]]  # axis to its values
Found = dict[Workload, None]  # workloads in order, each once
Keys = Mapping[str, At]


def read_axes(keys: Mapping[str, At]) -> Values:
    """The axes among the keys of a grid, or of `defaults`."""
    return {name: keys[name].many(axis.parse) for name, axis in AXES.items() if name in keys}


class WorkloadReader:
    """Reads grids into workloads."""

    def __init__(self, folder: Path, defaults: Values, lists_file: At | None) -> None:
        """`folder` is that of the experiment file; `lists_file` its `workload_lists`, if it has that key."""
        self.folder = folder
        self.defaults = defaults
        self.lists_file = lists_file
        self._lists: dict[str, At] | None = None
        self._count = 0
        self._hashes: dict[str, str] = {}

    def read(self, at: At) -> list[tuple[Keys, Found]]:
        """The grids of an experiment: which of RUN_KEYS each has, and its workloads."""
        grids: list[tuple[Keys, Found]] = []
        for entry in at.items():
            keys = entry.keys(GRID_KEYS)
            found = self._read_entry(entry, keys, {}, ())
            grids.append(({name: keys[name] for name in RUN_KEYS if name in keys}, found))
        self._check_length(at)
        return grids

    def _read_list(self, at: At, replaced: Values, trail: tuple[str, ...]) -> Found:
        """All workloads of a named list.

        `replaced` are the axes beside the `use` of this list; `trail` the names of the lists whose `use` led here.
        """
        found: Found = {}
        for entry in at.items():
            keys = entry.keys([name for name in GRID_KEYS if name not in RUN_KEYS])
            found.update(self._read_entry(entry, keys, replaced, trail))
        self._check_length(at)
        return found

    def _check_length(self, at: At) -> None:
        if isinstance(at.value, list) and not at.value:
            at.fault("expected at least one workload")

    def _read_entry(self, at: At, keys: Keys, replaced: Values, trail: tuple[str, ...]) -> Found:
        axes = {**read_axes(keys), **replaced}
        if "use" in keys:
            found = self._use(keys["use"], axes, trail)
        elif "model" in axes:
            found = self._expand(at, axes)
        else:
            if isinstance(at.value, dict):
                at.fault("key 'model' is missing (or 'use', for a named list)")
            return {}
        if "exclude" in keys:
            self._exclude(keys["exclude"], found, may_miss=bool(replaced))
        if "include" in keys:
            if "use" in keys:
                keys["include"].fault("include goes with axes, not with use; add another entry to the list instead")
            else:
                for extra in keys["include"].items():
                    found.update(self._expand(extra, {**axes, **read_axes(extra.keys(AXES)), **replaced}))
        return found

    def _use(self, at: At, axes: Values, trail: tuple[str, ...]) -> Found:
        name = at.one(text, "")
        lists = self._named_lists(at)
        if not name or lists is None:
            return {}
        if name not in lists:
            at.fault(unknown("workload list", name, tuple(lists)))
            return {}
        if name in trail:
            at.fault(f"workload lists use one another in a circle: {' -> '.join((*trail, name))}")
            return {}
        return self._read_list(lists[name], axes, (*trail, name))

    def _named_lists(self, at: At) -> dict[str, At] | None:
        if self._lists is None:
            name = self.lists_file.one(text, "") if self.lists_file else LISTS_FILE
            if not name:
                return None
            try:
                path = existing_file(self.folder, name)
            except BadInput as error:
                (self.lists_file or at).fault(f"no file of workload lists: {error}")
                return None
            root = open_document(path, str(path), at.faults)
            self._lists = root.entries() if root else {}
        return self._lists

    def _expand(self, at: At, axes: Values) -> Found:
        given = {**self.defaults, **axes}
        merged = {name: given[name] for name in AXES if name in given}  # in the order of AXES
        self._count += math.prod(len(values) for values in merged.values())
        if self._count > MAX_COMBINATIONS:
            at.fault(f"{self._count} combinations; an experiment has at most {MAX_COMBINATIONS}")
            return {}
        found: Found = {}
        for values in itertools.product(*merged.values()):
            workload = self._workload(at, dict(zip(merged, values, strict=True)), said=axes)
            if workload:
                found[workload] = None
        return found

    def _workload(self, at: At, values: dict[str, Any], said: Values) -> Workload | None:
        """One combination with every size filled in; reports values that do not fit together."""
        name = values["model"]
        model = MODELS.get(name)
        if model is None:
            values["model"] = name = self._inside(name)
            values["code_sha256"] = self._code_hash(at, name)
            if "dataset" not in values:
                at.fault(f"key 'dataset' is missing: {shown(name)} is your own model, whose dataset must be given")
                return None
        dataset = DATASETS[values.setdefault("dataset", model.datasets[0] if model else "")]
        if model and dataset.name not in model.datasets:
            at.fault(f"{name} cannot be trained on {dataset.name}; it reads {' or '.join(model.datasets)}")
            return None
        for kind, size in _SIZES.items():
            if kind == dataset.kind:
                values.setdefault(size, ordinary_size(model, dataset))
            elif values.pop(size, None) is not None and size in said:
                at.fault(f"{size} does not apply to {name} on {dataset.name}")
                return None
        values.setdefault("batch_size", 32)
        return Workload(**values) if self._choose_strategy(at, values, said) else None

    def _choose_strategy(self, at: At, values: dict[str, Any], said: Values) -> bool:
        """Fills in what follows from the strategy; reports what does not go with it and returns False."""
        name = values.setdefault("strategy", Workload.strategy)
        strategy = STRATEGIES[name]
        # What a strategy does not offer would duplicate runs.
        only = {"update": strategy.updates[0]} if len(strategy.updates) == 1 else {}
        absent = {} if strategy.has_servers else {"sharding": None}
        for axis, value in {**only, **absent}.items():
            if values.pop(axis, value) != value and axis in said:
                at.fault(f"{axis} does not apply to strategy {name}{f', which is always {value}' if value else ''}")
                return False
        values |= only
        if "topology" in values and not strategy.has_topology:
            if "topology" in said:
                at.fault(f"topology does not apply to strategy {name}")
                return False
            del values["topology"]
        framework = values.setdefault("framework", strategy.default_framework)
        backends = strategy.frameworks.get(framework, (Workload.backend,))
        values.setdefault("backend", backends[0])
        values.setdefault("topology", Workload.topology)
        fault = combination_fault(name, framework, values["backend"], values["topology"])
        model = MODELS.get(values["model"])
        if fault is None and framework not in (model.frameworks if model else OWN_MODELS):
            known = ", ".join(name for name, entry in MODELS.items() if framework in entry.frameworks)
            fault = f"{values['model']} cannot be trained with framework {framework} (it has {known})"
        if fault is not None:
            at.fault(fault)
        return fault is None

    def _inside(self, model: str) -> str:
        """A user's model with a canonical path, relative to the experiment where possible."""
        file, _, function = model.rpartition(":")
        path = os.path.normpath(file)
        if Path(path).is_relative_to(self.folder.absolute()):
            path = os.path.relpath(path, self.folder.absolute())
        return f"{path}:{function}"

    def _code_hash(self, at: At, model: str) -> str | None:
        if model not in self._hashes:
            try:
                path = existing_file(self.folder, model.rpartition(":")[0])
                self._hashes[model] = hashlib.sha256(path.read_bytes()).hexdigest()
            except (BadInput, OSError) as error:
                at.fault(f"model {shown(model)}: {getattr(error, 'strerror', None) or error}")
                return None
        return self._hashes[model]

    def _exclude(self, at: At, found: Found, *, may_miss: bool) -> None:
        # Indexed by axis and value, so that an entry is compared only with workloads that it could match.
        index: dict[str, dict[Any, list[Workload]]] = {}
        everything = tuple(found)  # entries may overlap: each is compared with the whole grid
        for entry in at.items():
            wanted = read_axes(entry.keys(AXES))
            if entry.value == {}:
                entry.fault("expected at least one axis")
            if not wanted or not all(wanted.values()) or not everything:
                continue  # nothing to match, or a fault that was reported already
            for axis in wanted.keys() - index.keys():
                buckets = index[axis] = {}
                for workload in everything:
                    buckets.setdefault(getattr(workload, axis), []).append(workload)
            candidates = {axis: [index[axis].get(value, []) for value in wanted[axis]] for axis in wanted}
            fewest = min(candidates.values(), key=lambda buckets: sum(map(len, buckets)))
            matching = [
                workload
                for workload in itertools.chain(*fewest)
                if all(getattr(workload, axis) in values for axis, values in wanted.items())
            ]
            if not matching and not may_miss:
                entry.fault("matches no combination of this grid")
            for workload in matching:
                found.pop(workload, None)
