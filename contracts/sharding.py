"""Which parameter server holds which variable."""

from __future__ import annotations

BALANCED = "balanced"
ROUND_ROBIN = "round_robin"


class Sharding:
    """Chooses the server of each variable, in the order in which the variables are created.

    `balanced` takes the server with the fewest bytes so far, the first one on a tie. `round_robin` takes the servers
    in turn, whatever the sizes, as TensorFlow does by default.
    """

    def __init__(self, servers: int, sharding: str) -> None:
        self.loads = [0] * servers
        self._balanced = sharding == BALANCED
        self._count = 0

    def place(self, size: int) -> int:
        """The index of the server for the next variable, which has `size` bytes."""
        index = self.loads.index(min(self.loads)) if self._balanced else self._count % len(self.loads)
        self.loads[index] += size
        self._count += 1
        return index
