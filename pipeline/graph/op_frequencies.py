"""How common each type of op is: the share of all ops of a dataset's graphs that are of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from driple.contracts.errors import BadInput
from driple.pipeline.graph.op_graph import OpGraph

_VERSION = re.compile(r"V(\d+)$")


def op_frequency(graphs: Iterable[OpGraph]) -> dict[str, float]:
    """Share of each op type among all ops of all graphs, in the order of their names; the shares add up to 1.

    A graph that is given twice counts twice: give each one of a dataset once.
    """
    counts: Counter[str] = Counter()
    for graph in graphs:
        counts.update(graph.ops)
    if not counts:
        raise BadInput("no graphs to count ops in")
    total = counts.total()
    return {op: counts[op] / total for op in sorted(counts)}


def frequencies(ops: Sequence[str], table: Mapping[str, float]) -> list[float]:
    """The frequency of each op by the table.

    An op that the table lacks takes that of its relative: the same name without the version at its end (`AddV2`,
    `Add`) and without `Resource` at its beginning (`ResourceApplyAdam`, `ApplyAdam`); of several relatives, that of the
    highest version. One without a relative was never seen: 0.
    """
    found = {op: float(table[op]) for op in set(ops) if op in table}
    missing = set(ops) - set(found)
    if missing:
        relatives = {_stem(op): op for op in sorted(table, key=lambda op: (_version(op), op))}  # the last one stays
        for op in missing:
            relative = relatives.get(_stem(op))
            found[op] = 0.0 if relative is None else float(table[relative])
    return [found[op] for op in ops]


def unknown_ops(graph: OpGraph, table: Mapping[str, float]) -> list[str]:
    """The op types of a graph that the table has neither by name nor by a relative."""
    stems = {_stem(op) for op in table}
    return sorted(op for op in set(graph.ops) if _stem(op) not in stems)


def _stem(op: str) -> str:
    return _VERSION.sub("", op).removeprefix("Resource")


def _version(op: str) -> int:
    match = _VERSION.search(op)
    return int(match[1]) if match else 1
