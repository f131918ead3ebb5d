"""The machines that rows of a dataset come from, told apart by fingerprints.

Fingerprints of one machine differ too: they take a second, beside whatever else runs. So two of them are of different
machines if they differ by more than LIMIT and the spread of their own repeats. The least spread ones are compared with
first, and each of the others joins the nearest of these. No chain of noisy fingerprints joins two machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from driple.contracts.errors import BadInput
from driple.contracts.fingerprint import MEASURES, Fingerprint, differs

LIMIT = 0.05
"""Machines whose speeds differ by more are different machines."""
UNSTEADY_PCT = 10.0
"""With a greater spread of its repeats a fingerprint tells nothing: something else ran meanwhile. On one machine of the
lab a busy second made the speed-up of two cores 1.25 with a spread of 19 %, instead of 1.91 with 3 %."""

PREFIX = "fingerprint_"
SPREAD = f"{PREFIX}spread_pct"
COLUMN = "machine"
"""Column of the number of a row's machine."""
NEEDED: Tuple[str, ...] = (*(f"{PREFIX}{name}" for name in ("cores", "version", *MEASURES)), SPREAD)
"""Columns of a fingerprint."""
PLACED: Tuple[str, ...] = ("run_id", "role", "started_real_s")
"""Further columns that `machines_of` needs."""

_Key = Tuple[Any, ...]


@dataclass(frozen=True)
class Machines:
    """The machines of some rows."""

    numbers: Tuple[Optional[int], ...]
    """Of each row, from 1 in the order in which they were used; None without a steady fingerprint."""
    difference: float
    """The largest between two of the machines; 0.1: one is 10 % faster."""
    runs: Tuple[int, ...]
    """Numbers of runs: of each set of machines that runs had, the most frequent one first."""

    @property
    def count(self) -> int:
        return len({number for number in self.numbers if number is not None})

    @property
    def mixed(self) -> bool:
        """Whether runs can be told apart by their machines."""
        return len(self.runs) > 1


def same_machine(first: Fingerprint, second: Fingerprint) -> bool:
    """Whether two fingerprints can be of one machine. Those of different versions cannot be compared: they are not."""
    if first.version != second.version:
        return False
    noise = (first.compared_spread_pct + second.compared_spread_pct) / 2
    return differs(first, second) <= LIMIT + noise / 100


def machines_of(rows: Sequence[Mapping[str, Any]]) -> Machines:
    """The machines of rows that have the columns NEEDED and PLACED. Missing columns count as null."""
    keys = [_key(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda place: _when(rows[place]))
    used = list(dict.fromkeys(key for key in (keys[place] for place in order) if key is not None))
    leaders = _leaders(used)
    numbers: Dict[_Key, int] = {}
    of_leader: Dict[_Key, int] = {}
    for key in used:  # a machine is numbered when its first row was measured
        numbers[key] = of_leader.setdefault(leaders[key], len(of_leader) + 1)
    found = tuple(None if key is None else numbers[key] for key in keys)
    chosen = [_fingerprint(key) for key in of_leader]
    return Machines(found, _difference(chosen), _runs(rows, found))


def check_one_machine(rows: Sequence[Mapping[str, Any]], remedy: str) -> None:
    """Raises BadInput if runs had different machines. Rows without a steady fingerprint do not count."""
    found = machines_of(rows)
    if found.mixed:
        raise BadInput(f"{said(found)}; {remedy}")


def said(found: Machines) -> str:
    """What a user is told about several machines."""
    apart = f"that differ by {100 * found.difference:.0f} %" if found.difference else "that cannot be compared"
    counts = " and ".join(map(str, found.runs))
    return f"{counts} runs of {found.count} machines {apart} (fingerprints)"


def _key(row: Mapping[str, Any]) -> Optional[_Key]:
    """The figures of the fingerprint of a row; None if one is missing or is not a speed, or if it is not steady."""
    values: _Key = tuple(row.get(name) for name in NEEDED)
    known = all(value is not None and (value > 0 or name == SPREAD) for name, value in zip(NEEDED, values))
    return values if known and values[NEEDED.index(SPREAD)] <= UNSTEADY_PCT else None


def _fingerprint(key: _Key) -> Fingerprint:
    values = {name[len(PREFIX) :]: value for name, value in zip(NEEDED, key) if name != SPREAD}
    return Fingerprint(**values, spread_pct={MEASURES[0]: key[NEEDED.index(SPREAD)]})


def _leaders(keys: Iterable[_Key]) -> Dict[_Key, _Key]:
    """For each fingerprint the one that stands for its machine."""
    found: Dict[_Key, _Key] = {}
    leaders: Dict[_Key, Fingerprint] = {}
    for key in sorted(keys, key=lambda one: (one[NEEDED.index(SPREAD)], one)):
        own = _fingerprint(key)
        near = [(differs(own, other), leader) for leader, other in leaders.items() if same_machine(own, other)]
        if near:
            found[key] = min(near)[1]
        else:
            found[key] = key
            leaders[key] = own
    return found


def _difference(fingerprints: Sequence[Fingerprint]) -> float:
    pairs = [
        differs(first, second)
        for place, first in enumerate(fingerprints)
        for second in fingerprints[place + 1 :]
        if first.version == second.version
    ]
    return max(pairs, default=0.0)


def _runs(rows: Sequence[Mapping[str, Any]], numbers: Sequence[Optional[int]]) -> Tuple[int, ...]:
    """How many runs had each set of machines: roles with the numbers of their machines."""
    by_run: Dict[Any, List[Tuple[str, Optional[int]]]] = {}
    for row, number in zip(rows, numbers):
        by_run.setdefault(row.get("run_id"), []).append((str(row.get("role")), number))
    counts: Dict[Tuple[Any, ...], int] = {}
    for tasks in by_run.values():
        if all(number is not None for _, number in tasks):
            machines = tuple(sorted(tasks, key=str))
            counts[machines] = counts.get(machines, 0) + 1
    return tuple(sorted(counts.values(), reverse=True))


def _when(row: Mapping[str, Any]) -> Tuple[float, str, str]:
    return row.get("started_real_s") or 0.0, str(row.get("run_id")), str(_key(row))
