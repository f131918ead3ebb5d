"""Work for processes: a module of its own, since a worker process must be able to import it."""

from __future__ import annotations

import os
import signal


def square(number: int) -> int:
    return number * number


def square_or_die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number
