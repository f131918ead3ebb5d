"""Imports the datasets that the Driple authors published.

A file is `torch.save` of three dictionaries (adjacency, features, labels), each `train`, `val`, `test` -> list of
batches: adjacency [B, N, N], features [B, N, 3] (tensor size, group size, node type), labels [B, 12] in the published
order. It is a pickle, so it is read only by torch's restricted reader: a file that contains anything but tensors and
containers is refused.

The graphs are grouped already. The file names neither models nor tasks, so these columns and the architecture split
are null. The units of the labels are unknown, so all rows have the flag `units_as_published`.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats import dataset as dataset_format
from driple.contracts.metrics import PUBLISHED_COLUMNS
from driple.contracts.setting import Setting
from driple.pipeline.datasets.dataset_file import Graph, Row, graph_key

EXPECTED = "expected three dictionaries (adjacency, features, labels) of train, val, test -> list of tensors"
_UNSUPPORTED = re.compile(r"GLOBAL (\S+)|(?:class|function|type) (\S+)")


@dataclass
class Import:
    """The content of a published file."""

    setting: Setting
    rows: list[Row] = field(default_factory=list)
    graphs: dict[str, Graph] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Graphs that cannot be used, with place and reason."""


def load(path: Path, setting: Setting | None, rules_version: int) -> Import:
    """Reads a published file. Without a setting, the name of the file contains it.

    Raises BadInput if the file is missing, of another kind, or contains code, or if torch is not installed.
    """
    if not path.is_file():
        raise BadInput(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    if setting is None:
        try:
            setting = Setting.parse(path.name)
        except BadInput:
            setting = Setting.parse(path.stem)
    found = Import(setting)
    digest = _sha256(path)
    adjacency, features, labels = _three(path, _load(path))
    for side in dataset_format.SIDES:
        number = 0
        for batch, tensors in enumerate(_batches(path, side, adjacency, features, labels)):
            for matrix, feature, label in zip(*_arrays(path, f"{side}[{batch}]", tensors), strict=True):
                name = f"published-{setting}-{side}-{number:05d}"
                number += 1
                try:
                    graph, flags = _graph(matrix, feature)
                except ValueError as error:
                    found.left_out.append(f"{name}: {error}")
                    continue
                key = graph_key(dataset_format.GROUPS, graph)
                found.graphs[key] = graph
                found.rows.append(
                    {
                        "setting": str(setting),
                        "run_id": name,
                        "provenance": dataset_format.PUBLISHED,
                        "inputs_sha256": digest,
                        "rules_version": rules_version,
                        "graph": key,
                        "graph_kind": dataset_format.GROUPS,
                        "nodes": len(feature),
                        "edges": len(graph["edge_src"]),
                        "flags": [dataset_format.UNITS_FLAG, *flags],
                        "split_random": side,
                        **{column: float(value) for column, value in zip(PUBLISHED_COLUMNS, label, strict=True)},
                    }
                )
    if not found.rows:
        raise BadInput(f"{path}: holds no usable graphs")
    return found


def _load(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise BadInput("reading a published dataset needs torch: pip install 'driple[inspector]'") from None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on its own old formats
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        text = " ".join(str(error).split())
        match = _UNSUPPORTED.search(text.partition("WeightsUnpickler error:")[2] or text)
        if match is None:
            raise BadInput(f"{path}: not a file that torch.save wrote, or one cut short") from None
        wants = next(group for group in match.groups() if group).rstrip(".,`'\"")
        raise BadInput(f"{path}: refused: it would run {shown(wants)}; a dataset may contain tensors only") from None
    except Exception as error:  # torch raises many kinds of errors for a broken file
        raise BadInput(f"{path}: not a file that torch.save wrote, or one cut short ({type(error).__name__})") from None


def _three(path: Path, value: Any) -> Sequence[dict[str, Any]]:
    import torch

    if isinstance(value, dict) and value and all(isinstance(item, torch.Tensor) for item in value.values()):
        raise BadInput(f"{path}: a checkpoint ({len(value)} weights such as {shown(next(iter(value)))}), not a dataset")
    if not (isinstance(value, (tuple, list)) and len(value) == 3 and all(isinstance(part, dict) for part in value)):
        raise BadInput(f"{path}: not a published dataset: {EXPECTED}, got {_described(value)}")
    for part, name in zip(value, ("adjacency", "features", "labels"), strict=True):
        wrong = [side for side in dataset_format.SIDES if not isinstance(part.get(side), (list, tuple))]
        if wrong:
            raise BadInput(f"{path}: not a published dataset: {EXPECTED}, but {name} has no list {wrong[0]!r}")
    return list(value)


def _batches(path: Path, side: str, *parts: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    lengths = {len(part[side]) for part in parts}
    if len(lengths) > 1:
        raise BadInput(f"{path}: {side}: adjacency, features and labels have different numbers of batches")
    return zip(*(part[side] for part in parts), strict=True)


def _arrays(path: Path, place: str, tensors: Sequence[Any]) -> Sequence[Any]:
    """The three tensors of a batch as numpy arrays, after checks."""
    import torch

    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_complex():
            raise BadInput(f"{path}: {place}: expected an ordinary tensor, got {_described(tensor)}")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise BadInput(f"{path}: {place}: a tensor claims more values than the file holds")
    adjacency, features, labels = tensors
    graphs = adjacency.shape[0] if adjacency.ndim else 0
    nodes = adjacency.shape[-1] if adjacency.ndim else 0
    wanted = ((graphs, nodes, nodes), (graphs, nodes, 3), (graphs, len(PUBLISHED_COLUMNS)))
    for tensor, shape in zip((adjacency, features, labels), wanted, strict=True):
        if tuple(tensor.shape) != shape:
            got = ", ".join(str(list(tensor.shape)) for tensor in tensors)
            raise BadInput(
                f"{path}: {place}: expected [B, N, N], [B, N, 3] and [B, {len(PUBLISHED_COLUMNS)}], got {got}"
            )
    return [tensor.to(torch.float64).numpy() for tensor in tensors]


def _graph(matrix: Any, feature: Any) -> tuple[dict[str, Any], list[str]]:
    import numpy as np

    if not (np.isfinite(feature).all() and np.isfinite(matrix).all()):
        raise ValueError("a feature or an edge that is not a number")
    flags = []
    there = matrix != 0
    if (matrix[there] != 1).any():
        flags.append(dataset_format.WEIGHTS_FLAG)
    if there.diagonal().any():
        flags.append(dataset_format.SELF_LOOPS_FLAG)
    if (there != there.T).any():
        flags.append(dataset_format.SYMMETRISED_FLAG)
    src, dst = np.nonzero(np.triu(there | there.T, k=1))
    graph = {
        "group_bytes": feature[:, 0].copy(),
        "group_size": feature[:, 1].copy(),
        "group_frequency": feature[:, 2].copy(),
        "edge_src": src.astype(np.int32),
        "edge_dst": dst.astype(np.int32),
    }
    return graph, flags


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, (tuple, list, dict)) else kind


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
