"""Targets of training-time prediction, set before the final run (docs/benchmarks/training-time-protocol.md)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from time_contest.figures import ALL, Figures
from time_contest.registry import ERNEST_OWN, ERNEST_REUSED, OUR_LAWS, OURS, OURS_REFITTED

ARCHITECTURE = {"cpu-p1w1-1g": 4.5, "cpu-p1w2-1g": 8.5, "cpu-p2w2-1g": 8.0}
FAMILY = {"cpu-p1w1-1g": 7.0, "cpu-p1w2-1g": 11.0, "cpu-p2w2-1g": 10.0}
ABOVE_NOISE = 5.0
"""Of a left-out family on one of these settings, if it was measured again with repetitions of most rows."""
OTHER_WORKERS, OTHER_LINK = 10.0, 9.0
NEW_MACHINE = 8.0
ERNEST_REUSED_RATIO, ERNEST_OWN_RATIO = 10.0, 1.5
COVERAGE = (86.0, 94.0)
LAW_MS, SIMULATION_MS = 1.0, 50.0


class Verdict(NamedTuple):
    """One figure beside its target."""

    what: str
    target: str
    found: str
    reached: bool


def verdicts(figures: Figures) -> list[Verdict]:
    """Every target whose figures exist."""
    return [verdict for find in _TARGETS for verdict in find(figures)]


def _at_most(what: str, limit: float, found: float, unit: str = " %") -> Verdict:
    return Verdict(what, f"<= {limit:g}{unit}", f"{found:.1f}{unit}", found <= limit)


def _at_least(what: str, limit: float, found: float) -> Verdict:
    return Verdict(what, f">= {limit:g}", f"{found:.1f}", found >= limit)


def _mapes(figures: Figures, part: str, name: str) -> dict[str, float]:
    found = figures["parts"].get(part, {}).get(name, {})
    return {place: error["mape"] for place, error in found.items() if error is not None and place != ALL}


def _architecture(figures: Figures) -> Iterator[Verdict]:
    yield from _limits(figures, "architecture", OURS, "architecture split", ARCHITECTURE)


def _family(figures: Figures) -> Iterator[Verdict]:
    yield from _limits(figures, "family", OURS, "leave one family out", FAMILY)
    yield from _limits(figures, "family", OURS_REFITTED, "leave one family out, simulator refitted", FAMILY)


def _limits(figures: Figures, part: str, name: str, title: str, limits: dict[str, float]) -> Iterator[Verdict]:
    for place, mape in _mapes(figures, part, name).items():
        setting = place.partition(" ")[0]
        facts = figures["places"][place]
        if setting in limits and facts["repeated"] <= facts["rows"] / 2:
            yield _at_most(f"{title}, {place}", limits[setting], mape)
        elif setting in limits and part == "family":
            yield _at_most(f"{title}, {place}, measured again", facts["noise"] + ABOVE_NOISE, mape)


def _setting(figures: Figures) -> Iterator[Verdict]:
    for place, mape in _mapes(figures, "setting 0", OURS).items():
        other_link = is_other_link(figures, place)
        title = "another link" if other_link else "other servers or workers"
        yield _at_most(f"setting left out, {place} ({title})", OTHER_LINK if other_link else OTHER_WORKERS, mape)


def is_other_link(figures: Figures, place: str) -> bool:
    """Whether no other setting of the machine has the link of this one."""
    machine = figures["places"][place]["machine"]
    links = {
        _link(other) for other, facts in figures["places"].items() if facts["machine"] == machine and other != place
    }
    return _link(place) not in links


def _link(place: str) -> str:
    return place.partition(" ")[0].rpartition("-")[2]


def _machine(figures: Figures) -> Iterator[Verdict]:
    for place, mape in _mapes(figures, "machine 1", OURS).items():
        yield _at_most(f"new machine, one chosen run, {place}", NEW_MACHINE, mape)


def _ernest_reused(figures: Figures) -> Iterator[Verdict]:
    for part, title in (("architecture", "architecture split"), ("family", "leave one family out")):
        ours = _mapes(figures, part, OURS)
        theirs = [known for name in ERNEST_REUSED if (known := _mapes(figures, part, name))]
        if ours and theirs:
            best = min(statistics.mean(known.values()) for known in theirs)
            ratio = best / statistics.mean(ours.values())
            yield _at_least(f"error of Ernest, reused / ours, {title}", ERNEST_REUSED_RATIO, ratio)


def _ernest_own(figures: Figures) -> Iterator[Verdict]:
    ours = _mapes(figures, "family", OURS)
    theirs = [_mapes(figures, "family", name) for name in ERNEST_OWN]
    for place, mape in ours.items():
        known = [one[place] for one in theirs if place in one]
        if known:
            yield _at_least(f"error of Ernest with up to 5 runs / ours, {place}", ERNEST_OWN_RATIO, min(known) / mape)


def _coverage(figures: Figures) -> Iterator[Verdict]:
    low, high = COVERAGE
    for place, share in figures["coverage"].items():
        if share is not None:
            target = f"{low:g} to {high:g} %"
            yield Verdict(f"coverage of the 90 % interval, {place}", target, f"{share:.1f} %", low <= share <= high)


def _answers(figures: Figures) -> Iterator[Verdict]:
    for name, title, limit in ((OUR_LAWS, "laws alone", LAW_MS), (OURS, "with simulation", SIMULATION_MS)):
        seconds = figures.get("answers", {}).get(name)
        if seconds is not None:
            found = 1e3 * seconds
            yield Verdict(f"answer, graph in memory, {title}", f"<= {limit:g} ms", f"{found:.2g} ms", found <= limit)


_TARGETS: tuple[Callable[[Figures], Iterator[Verdict]], ...] = (
    _architecture,
    _family,
    _setting,
    _machine,
    _ernest_reused,
    _ernest_own,
    _coverage,
    _answers,
)
