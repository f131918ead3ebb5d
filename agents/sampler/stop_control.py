"""Control: everything that can tell a sampler to stop, in one wait. A sampler is never left behind.

Signals, the end of what is watched, the end of the controller's channel, the asked duration and the hard limit. While
it waits it answers the controller's clock probes at once, not at the next tick.

Between ticks it only sleeps, which is the cheapest wait there is: 10 to 15 us less at each tick than a `select`. What
comes from the controller interrupts the sleep by a signal (SIGIO). Where stdin gives none, or somebody who shares it
has turned that off, it is found within a second.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Callable, List, Optional

from driple.agents.sampler.ticker import SECOND_NS
from driple.contracts.protocol.clock import CLOCK, clock_answer
from driple.contracts.protocol.sampler_lines import READY, STOP

# After the hard limit the kernel itself ends the process: even when a driver's call never comes back.
GRACE_S = 120
_SHORT_S = 0.05
_HEAR_NS = SECOND_NS


class Control:
    """Waits, reads the controller's lines, and decides when to stop."""

    def __init__(self, for_s: Optional[float] = None, limit_s: float = 86_400.0, watch_stdin: bool = False) -> None:
        self.reason: Optional[str] = None  # why sampling stops; None while it goes on
        self.told: Optional[str] = None  # the same, if it was told to go: what it started has to go too
        self._ended: Callable[[], Optional[str]] = lambda: None
        self._stdin = sys.stdin.fileno() if watch_stdin else -1
        self._line = b""
        self._hearing = False
        self._hear_ns = 0
        self._start = time.monotonic_ns()
        self._for_ns = None if for_s is None else int(for_s * SECOND_NS)
        self._limit_s = limit_s
        self._old: List[Any] = []
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watched = [self._wake_read] + ([self._stdin] if watch_stdin else [])

    def __enter__(self) -> Control:
        self._start = time.monotonic_ns()

        def stop(number: int, _: object) -> None:
            self.stop(f"signal {signal.Signals(number).name}")

        self._old_wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: it stays ignored, by us and by the command that we start
            self._old.append((number, signal.signal(number, stop)))
        self._old.append((signal.SIGCHLD, signal.signal(signal.SIGCHLD, lambda *_: self._look_at_end())))
        if self._stdin >= 0:
            self._old.append((signal.SIGIO, signal.signal(signal.SIGIO, lambda *_: self._hear())))
            self._signal_input(True)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s + GRACE_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(self._old_wakeup)
        if self._stdin >= 0:
            self._signal_input(False)
        for number, handler in self._old:
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def begin(self, ended: Callable[[], Optional[str]]) -> None:
        """Time counts from here. Before it there are only signals, so that what is started meanwhile is never left.

        `ended` says why what is watched is over, or None while it is not; it is asked often and must be quick.
        """
        self._ended = ended
        self._start = time.monotonic_ns()

    def sampled(self) -> None:
        """Nothing follows that could hang in a driver: to seal a long trace may take longer than the backstop gives."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def stop(self, reason: str) -> None:
        """Tells it to go, with a clean stop; the first reason counts."""
        self.reason = self.reason or reason
        self.told = self.told or reason

    def wait(self, seconds: float) -> bool:
        """Sleeps, at most until something happens. Returns whether to stop."""
        if seconds < _SHORT_S:
            time.sleep(seconds)  # a signal is handled at once also here; only the rest of the sleep is slept
            return self.reason is not None
        if self.reason is None:  # the end may come before the next tick
            seconds = min(seconds, max(0, self.end_ns - time.monotonic_ns()) / SECOND_NS)
        ready, _, _ = select.select(self._watched, (), (), seconds)
        if ready:
            self._take(ready)
        elif self.reason is None and time.monotonic_ns() >= self.end_ns:
            self.look(time.monotonic_ns())
        return self.reason is not None

    def look(self, now_ns: int) -> bool:
        """Checks conditions that cause no wake-up. Returns whether to stop."""
        if self._stdin >= 0 and now_ns >= self._hear_ns:
            self._hear_ns = now_ns + _HEAR_NS
            self._hear()
        if self.reason is None:
            passed = now_ns - self._start
            if self._for_ns is not None and passed >= self._for_ns:
                self.reason = "duration"
            elif passed >= self._limit_s * SECOND_NS:
                self.stop("hard limit")
            else:
                self._look_at_end()
        return self.reason is not None

    @property
    def end_ns(self) -> int:
        """The monotonic time at which it stops if nothing else ends it before."""
        limit = int(self._limit_s * SECOND_NS)
        return self._start + (limit if self._for_ns is None else min(limit, self._for_ns))

    def look_at_limit(self) -> None:
        """Only the hard limit: for what follows the sampling."""
        if time.monotonic_ns() - self._start >= self._limit_s * SECOND_NS:
            self.stop("hard limit")

    def _take(self, ready: List[int]) -> None:
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 512)
            self._look_at_end()
        if self._stdin in ready:
            self._hear()

    def _look_at_end(self) -> None:
        self.reason = self.reason or self._ended()

    def _hear(self) -> None:
        """Reads lines from the controller. Also runs as a signal handler, at any point of the program."""
        if self._hearing:  # one that was interrupted by the signal: it goes on until there is nothing left
            return
        self._hearing = True
        try:
            while self._stdin_ready():
                data = os.read(self._stdin, 4096)
                if not data:
                    self.stop("controller gone")
                    return
                *lines, self._line = (self._line + data)[-8192:].split(b"\n")
                for line in lines:
                    self._obey(line)
        finally:
            self._hearing = False

    def _stdin_ready(self) -> bool:
        return bool(select.select((self._stdin,), (), (), 0)[0])

    def _signal_input(self, on: bool) -> None:
        """Asks the kernel for a signal at each input; a file or a device without it is no harm."""
        with suppress(OSError):
            flags = fcntl.fcntl(self._stdin, fcntl.F_GETFL)
            fcntl.fcntl(self._stdin, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(self._stdin, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)

    def _obey(self, line: bytes) -> None:
        text = line.decode("ascii", "replace")
        if text.startswith(CLOCK):
            say(clock_answer(text))
        elif text.strip() == STOP:
            self.stop("controller")


def say(line: str, patience_s: float = 0.0) -> None:
    """Sends a line to the controller. The line is dropped if the controller does not read it or is gone.

    The descriptor stays blocking, as others may share it. Where it is ready, a pipe takes this much without blocking.
    """
    rest, out = line.encode("utf-8") + b"\n", sys.stdout.fileno()
    end = time.monotonic() + patience_s
    with suppress(BrokenPipeError):
        while rest and select.select((), (out,), (), max(0.0, end - time.monotonic()))[1]:
            rest = rest[os.write(out, rest[: select.PIPE_BUF]) :]


def answer_probes() -> None:
    """Answers clock probes until stdin ends or `stop` arrives."""
    control = Control(watch_stdin=True)
    with control:
        say(READY)
        while not control.wait(3600.0) and not control.look(time.monotonic_ns()):
            pass
