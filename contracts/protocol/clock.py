"""Clock probe: `clock 17` is answered at once by `clock 17 <monotonic ns> <realtime ns>`. Not JSON, to be quick."""

from __future__ import annotations

import time

CLOCK = "clock"


def clock_request(number: int) -> str:
    """A probe; the number comes back, so that each answer can be matched with its request."""
    return f"{CLOCK} {number}"


def clock_answer(request: str) -> str:
    """The answer to a probe. The clocks are read first: everything after it would count as travel time."""
    mono, real = time.monotonic_ns(), time.time_ns()
    token = request.split()[1:2] or ["0"]
    return f"{CLOCK} {token[0][:20]} {mono} {real}"


def clock_mono_ns(answer: str) -> int:
    """The monotonic time in an answer."""
    return int(answer.split()[2])
