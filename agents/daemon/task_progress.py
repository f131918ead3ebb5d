"""Follows the progress of tasks by the files in their folders (contracts/formats/task_files.py).

New steps are read once a second; the two markers are noticed at once. The task itself is not involved.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from driple.agents.daemon.event_loop import READ, Loop, Timer
from driple.agents.daemon.procfs import process
from driple.agents.daemon.work_dir import open_now
from driple.contracts.errors import BadInput
from driple.contracts.formats.task_files import FINISHED_FILE, READY_FILE, STEPS_FILE, UNREADABLE, Finished
from driple.contracts.protocol.events import Progress

PERIOD_S = 1.0

# Longer than the line of any step.
_HALF_LIMIT = 65536
_CHUNK = 1 << 18
_MARKER_BYTES = 65536
_IN_MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")


class Task:
    """A task and its folder."""

    def __init__(self, name: str, folder: Path, alive: Callable[[], bool]) -> None:
        self.name = name
        self.folder = folder
        # Built once: this code runs during the measurement.
        self._paths = folder / STEPS_FILE, folder / READY_FILE, folder / FINISHED_FILE
        self._alive = alive
        self._told: Optional[Progress] = None
        self._file = (0, 0)
        self._offset = 0
        self._half = b""
        self._steps = 0
        self._last: Optional[Dict[str, Any]] = None

    def news(self) -> Optional[Progress]:
        """The progress, if it changed since the last call."""
        alive = self._alive()  # first: a process that is dead now will write nothing more
        _, ready, finished = self._paths
        self._read_steps()
        progress = Progress(
            name=self.name,
            ready=ready.exists(),
            steps=self._steps,
            last=self._last,
            finished=_finished(finished),
            alive=alive,
        )
        if progress == self._told:
            return None
        self._told = progress
        return progress

    def _read_steps(self) -> None:
        with suppress(OSError):
            about = self._paths[0].stat()
            if (about.st_dev, about.st_ino) != self._file or about.st_size < self._offset:  # the file was replaced
                self._file = (about.st_dev, about.st_ino)
                self._offset, self._half, self._steps, self._last = 0, b"", 0, None
            if about.st_size > self._offset:
                fd = os.open(self._paths[0], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    while self._take(os.pread(fd, _CHUNK, self._offset)):
                        pass
                finally:
                    os.close(fd)

    def _take(self, data: bytes) -> bool:
        self._offset += len(data)
        whole, end, half = data.rpartition(b"\n")
        if end:
            self._steps += whole.count(b"\n") + 1
            with suppress(ValueError, RecursionError):
                last = json.loads((self._half + whole).rpartition(b"\n")[2])
                self._last = last if isinstance(last, dict) else self._last
            self._half = half
        else:
            self._half = (self._half + half)[-_HALF_LIMIT:]
        return len(data) == _CHUNK


def _finished(path: Path) -> Optional[Finished]:
    try:
        with open(path, "rb", opener=open_now) as stream:  # noqa: PTH123  (Path.open takes no opener)
            return Finished.read(json.loads(stream.read(_MARKER_BYTES) or b""), "finished")
    except FileNotFoundError:
        return None
    except (BadInput, OSError, ValueError, RecursionError) as error:  # not half a file, as it was moved into place
        return Finished(exit_code=1, message=f"{path.name} cannot be read: {error}", kind=UNREADABLE)


def alive(pid: int) -> Callable[[], bool]:
    """A function that checks whether this process, and not a later one with its number, still runs."""
    first = process(pid)

    def asked() -> bool:
        now = process(pid)
        return first is not None and now is not None and now.start == first.start and not now.dead

    return asked


class Follower:
    """All tasks that are followed."""

    def __init__(self, loop: Loop, tell: Callable[[Progress], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._tasks: Dict[str, Task] = {}
        self._markers = Markers(loop, self._look_all)
        self._timer: Optional[Timer] = None

    def follow(self, task: Task) -> None:
        """Reports the progress of a task now and whenever it changes."""
        self.unfollow(task.name)
        self._tasks[task.name] = task
        self._markers.watch(task.name, task.folder)
        self.look(task.name)
        if self._timer is None:
            self._timer = self._loop.after(PERIOD_S, self._tick)

    def unfollow(self, name: str) -> None:
        """Reports the last progress and stops. Does nothing for a task that is not followed."""
        self.look(name)
        if self._tasks.pop(name, None) is not None:
            self._markers.forget(name)

    def look(self, name: str) -> None:
        """Reports the progress at once if it changed."""
        task = self._tasks.get(name)
        news = None if task is None else task.news()
        if news is not None:
            self._tell(news)

    def _look_all(self) -> None:
        for name in list(self._tasks):
            self.look(name)

    def _tick(self) -> None:
        self._look_all()
        self._timer = self._loop.after(PERIOD_S, self._tick) if self._tasks else None


class Markers:
    """Calls when a marker is moved into a folder (inotify). Lines added to a file there cause no wake-up."""

    def __init__(self, loop: Loop, call: Callable[[], None]) -> None:
        self._call = call
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watched: Dict[str, int] = {}
        if self._fd >= 0:  # else the host has too many, and a marker is noticed within a second
            loop.watch(self._fd, READ, self._ready)

    def watch(self, name: str, folder: Path) -> None:
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _IN_MOVED_TO) if self._fd >= 0 else -1
        if number >= 0:
            self._watched[name] = number

    def forget(self, name: str) -> None:
        number = self._watched.pop(name, None)
        if number is not None and number not in self._watched.values():
            self._libc.inotify_rm_watch(self._fd, number)

    def _ready(self) -> None:
        with suppress(BlockingIOError):
            data, at, called = os.read(self._fd, 65536), 0, False
            while at + _EVENT.size <= len(data):
                _, _, _, length = _EVENT.unpack_from(data, at)
                moved = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode("utf-8", "replace")
                called = called or moved in (READY_FILE, FINISHED_FILE)
                at += _EVENT.size + length
            if called:
                self._call()
