"""Assigns rows to the train, val and test sides of the splits.

The side depends on the row's own identity only. New rows never move old ones, and a dataset that grew run by run
equals one that was built at once.

`architecture`
    By model family: no family is on two sides. This is the default, because users ask about models that never ran.
`random`
    By workload, about 60 % train, 20 % val and 20 % test as in the paper: the same architecture with another batch
    size may be on another side. Tasks, repetitions and network conditions of one workload stay together.

A side is a range of a hash, so a small dataset can have an empty side. `empty_sides` lists these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from driple.contracts.formats.dataset import SIDES, TEST, TRAIN, VAL
from driple.contracts.json_values import content_hash
from driple.contracts.run_spec import IDENTITY_VERSION, Workload

_UP_TO = ((0.6, TRAIN), (0.8, VAL), (1.0, TEST))

# 16 families of very unequal size seldom split 60/20/20. Of 20 000 salts this one comes closest for the models of the
# zoo (30, 10 and 8 of 48), with image and sequence models and small and large ones on every side. A change moves
# rows to other sides: increase `run_rows.RULES_VERSION` with it.
_FAMILY_SALT = "driple-6666"
_WORKLOAD_SALT = "driple-random"


def architecture_side(family: str) -> str:
    """The side of a model family; the family of a user's own model is its name."""
    return _side(_FAMILY_SALT, family)


def random_side(workload: Workload) -> str:
    """The side of a workload. It does not depend on the setting or the repetition."""
    return _side(_WORKLOAD_SALT, content_hash(workload, IDENTITY_VERSION, digits=64))


def empty_sides(sides: Iterable[str | None]) -> tuple[str, ...]:
    """The sides that have no rows."""
    taken = set(sides)
    return tuple(side for side in SIDES if side not in taken)


def _side(salt: str, key: str) -> str:
    digest = hashlib.sha256(f"{salt}:{key}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return next(side for limit, side in _UP_TO if share < limit or side == TEST)
