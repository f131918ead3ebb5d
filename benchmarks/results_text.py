"""Text and number formats that all sections of docs/benchmarks/results.md share."""

from __future__ import annotations

import itertools
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

Found = dict[str, Any]

COLOURS = {"driple": "#1f4e79", "trees": "#f4a259", "ridge": "#5b8e7d", "paper": "#8c5e8c", "mean": "#b9b9b9"}


def filled(parts: Iterable[str]) -> str:
    """The page, with paragraphs of at most 118 columns; tables, titles, lists and pictures stay as they are."""
    lines = "\n".join(parts).split("\n")
    pieces: list[str] = []
    for prose, block in itertools.groupby(lines, lambda line: bool(line) and line[0] not in "|#!- "):
        text = "\n".join(block)
        fill = textwrap.TextWrapper(118, break_on_hyphens=False, break_long_words=False).fill
        pieces.append(fill(text) if prose else text)
    return "\n".join(pieces)


def head(*names: str) -> list[str]:
    """The first two lines of a table."""
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def all_of(rows: Iterable[Found], score: str) -> list[float]:
    return [row[score]["all"] for row in rows]


def mean_of(rows: Sequence[Found], score: str, column: str) -> float | None:
    known = [row[score][column] for row in rows if row[score][column] is not None]
    return statistics.mean(known) if known else None


def percent(value: float | list[float] | None) -> str:
    if isinstance(value, list):
        value = statistics.mean(value)
    return "-" if value is None else f"{100 * value:.1f}"


def spread(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * statistics.mean(values):.1f} ± {100 * deviation:.1f}"


def within(values: Iterable[float], digits: int = 0) -> str:
    known = sorted(values)
    low, high = f"{known[0]:.{digits}f}", f"{known[-1]:.{digits}f}"
    return low if low == high else f"{low} to {high}"
