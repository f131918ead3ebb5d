"""Records: where the frames of a capture are, and what the capture says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Records(NamedTuple):
    """Packets of one link type in a window of a file."""

    link_type: int
    at: NDArray[np.int64]
    """Where each frame begins in the window."""
    captured: NDArray[np.int64]
    """Bytes of it that are in the file."""
    length: NDArray[np.int64]
    """Bytes that it had."""
    t_ns: NDArray[np.int64]

    def where(self, keep: Any) -> Records:
        """Some of them."""
        return self._replace(**{name: getattr(self, name)[keep] for name in ("at", "captured", "length", "t_ns")})
