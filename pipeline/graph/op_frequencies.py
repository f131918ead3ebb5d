"""Frequency of op types: the share of each type among all ops of a dataset's graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from driple.contracts.errors import BadInput
from driple.pipeline.graph.op_graph import OpGraph

_VERSION = re.compile(r"V(\d+)$")


def op_frequency(graphs: Iterable[OpGraph]) -> dict[str, float]:
    """Share of each op type among all ops of all graphs, each given once, by name; the shares add up to 1."""
    counts: Counter[str] = Counter()
    for graph in graphs:
        counts.update(graph.ops)
    if not counts:
        raise BadInput("no graphs to count ops in")
    total = counts.total()
    return {op: counts[op] / total for op in sorted(counts)}


def frequencies(ops: Sequence[str], table: Mapping[str, float]) -> list[float]:
    """The frequency of each op by the table.

    An op that is not in the table gets the frequency of its relative: the same name without the version suffix
    (`AddV2`, `Add`) and without the prefix `Resource` (`ResourceApplyAdam`, `ApplyAdam`); of several, the one with the
    highest version. An op without a relative gets 0.
    """
    found = {op: float(table[op]) for op in set(ops) if op in table}
    missing = set(ops) - set(found)
    if missing:
        relatives = {_stem(op): op for op in sorted(table, key=lambda op: (_version(op), op))}  # the last one wins
        for op in missing:
            relative = relatives.get(_stem(op))
            found[op] = 0.0 if relative is None else float(table[relative])
    return [found[op] for op in ops]


def unknown_ops(graph: OpGraph, table: Mapping[str, float]) -> list[str]:
    """The op types of a graph that are not in the table and have no relative there."""
    stems = {_stem(op) for op in table}
    return sorted(op for op in set(graph.ops) if _stem(op) not in stems)


def _stem(op: str) -> str:
    return _VERSION.sub("", op).removeprefix("Resource")


def _version(op: str) -> int:
    match = _VERSION.search(op)
    return int(match[1]) if match else 1
