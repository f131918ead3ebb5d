"""Folders of labs: where they are, which labs run, and the removal of folders of labs that have ended.

The process that starts a lab and then its supervisor hold a lock (flock) on its folder. The kernel releases it however
they end, so the lab of a folder that can be locked has ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.orchestrator.lab.cpu_groups import remove_recorded
from driple.orchestrator.lab.layout import NAME


def places() -> list[Path]:
    """Folders that may contain labs of this user; new ones go into the first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = [Path(runtime)] if runtime and _is_own(Path(runtime)) else []
    return [*own, Path(tempfile.gettempdir()).resolve()]


def path_of(name: str) -> Path:
    """The folder of a new lab of that name."""
    if not NAME.fullmatch(name):
        raise BadInput(f"name of a lab: expected a-z, 0-9 and '-', at most 32 of them, got {name!r}")
    return places()[0] / f"{_prefix()}{name}"


def name_of(folder: Path) -> str:
    """The lab's name."""
    return folder.name.split("-", 3)[3]  # our prefix has the user's number, which differs inside a user namespace


def living() -> list[Path]:
    """Folders of the labs that run. Removes those of labs that have ended."""
    found = [folder for place in places() for folder in sorted(place.glob(f"{_prefix()}*")) if _is_own(folder)]
    return [folder for folder in dict.fromkeys(found) if not clear(folder)]


def clear(folder: Path, patience_s: float = 0.0) -> bool:
    """Removes the folder of a lab that has ended. False if it still runs after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (cleared := _clear(folder)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return cleared


def _clear(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not _take(lock, folder):
            return not folder.exists()
        remove_recorded(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(lock)


@contextmanager
def made(folder: Path) -> Iterator[int]:
    """Creates a lab's folder; yields the descriptor of its lock. Raises BadInput if a lab of that name runs."""
    while True:
        if not _is_own(folder, missing=True):
            raise BadInput(f"{folder} belongs to another user; choose another name for the lab")
        if not clear(folder, patience_s=0.5):  # another process may be removing it
            name = name_of(folder)
            raise BadInput(f"the lab {name!r} is up already; `driple-lab down --name {name}` removes it")
        try:
            folder.mkdir(mode=0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileExistsError, FileNotFoundError):
            continue
        try:
            if _take(lock, folder):
                yield lock
                return
        finally:
            os.close(lock)


def _take(lock: int, folder: Path) -> bool:
    """Takes the lock. False if it is held, or if the folder was replaced."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_ino == folder.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _prefix() -> str:
    return f"driple-lab-{os.getuid()}-"


def _is_own(folder: Path, missing: bool = False) -> bool:
    """Whether it is a real folder that only this user can enter; `missing` if there is none."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return missing
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
