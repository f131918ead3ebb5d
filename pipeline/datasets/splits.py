"""Which rows an inspector learns from, is chosen by, and is judged on.

A side is a pure function of a row's own identity: no other row is looked at, so new rows never move old ones, and a
dataset that grew run by run equals one that was built at once.

`architecture`
    By model family: no family is on two sides. The default, because it is what a user asks: a model that never ran.
`random`
    By workload, about 60 % train, 20 % val, 20 % test as in the paper: the same architecture at another batch size may
    be on the other side. Tasks, repetitions and network conditions of one workload stay together.

Sides are shares of a hash and not counts: a small dataset can have an empty side. `empty_sides` says which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from driple.contracts.json_values import content_hash
from driple.contracts.run_spec import IDENTITY_VERSION, Workload

TRAIN = "train"
VAL = "val"
TEST = "test"
SIDES: tuple[str, ...] = (TRAIN, VAL, TEST)

ARCHITECTURE = "architecture"
RANDOM = "random"
SPLITS: tuple[str, ...] = (ARCHITECTURE, RANDOM)

_UP_TO = ((0.6, TRAIN), (0.8, VAL), (1.0, TEST))

# 16 families of very unequal size seldom fall 60/20/20. Of 20 000 salts this one comes nearest for the models of the
# zoo (30, 10 and 8 of 48), with image and sequence models and small and large ones on every side. Changing it moves
# every row: raise `rows.RULES_VERSION` with it.
_FAMILY_SALT = "driple-6666"
_WORKLOAD_SALT = "driple-random"


def architecture_side(family: str) -> str:
    """The side of a model family, or of a user's own model by its name."""
    return _side(_FAMILY_SALT, family)


def random_side(workload: Workload) -> str:
    """The side of a workload, wherever and however often it ran."""
    return _side(_WORKLOAD_SALT, content_hash(workload, IDENTITY_VERSION, digits=64))


def empty_sides(sides: Iterable[str | None]) -> tuple[str, ...]:
    """The sides on which no row is."""
    taken = set(sides)
    return tuple(side for side in SIDES if side not in taken)


def _side(salt: str, key: str) -> str:
    digest = hashlib.sha256(f"{salt}:{key}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return next(side for limit, side in _UP_TO if share < limit or side == TEST)
