"""WorkDir: the steward's folder on a host. Nothing outside it is changed, and one steward at a time has it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List

from driple.contracts.errors import BadInput, shown
from driple.contracts.run_dir import replacing

LOCK, LIVE, UNDO = "lock", "live", "undo"
TAIL_BYTES = 65536

_CHUNK = 1 << 20
_OWNER_BYTES = 4096


class WorkDir:
    """The folder, and what is done to files in it."""

    def __init__(self, path: str) -> None:
        """Makes the folder. Raises OSError where that cannot be."""
        wanted = expanded(path)
        wanted.mkdir(parents=True, exist_ok=True)
        self.path = wanted.resolve()
        self._lock = -1

    def take(self, owner: str) -> bool:
        """Takes the folder for this process, until it ends in whatever way; False if another has it."""
        if self._lock < 0:
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        about = {"owner": owner, "pid": os.getpid(), "since_real_s": time.time()}
        with suppress(OSError):  # on a full disk it must start all the same: to clear it up
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, json.dumps(about).encode("ascii"), 0)
        return True

    def holder(self) -> Dict[str, Any]:
        """Who has it: owner, pid and since when, as far as that was written."""
        try:
            found = json.loads(os.pread(self._lock, _OWNER_BYTES, 0))
            return {key: found[key] for key in ("owner", "pid", "since_real_s")}
        except (ValueError, KeyError, TypeError):  # in the moment before it is written
            return {"owner": "unknown", "pid": None, "since_real_s": None}

    def under(self, path: str) -> Path:
        """A path to read: a relative one is under the folder."""
        return self.path / expanded(path)

    def inside(self, path: str) -> Path:
        """A path to write or remove, which must be in the folder, links and all.

        Raises:
            BadInput: it is elsewhere, or is the folder's own.
        """
        wanted = Path(os.path.normpath(self.under(path)))
        # Of the last part the link itself is meant, as it is replaced or removed and not followed.
        try:
            found = wanted.parent.resolve() / wanted.name
        except (OSError, RuntimeError):  # links in a circle
            raise BadInput(f"{shown(path)} leads nowhere") from None
        if self.path not in found.parents:
            raise BadInput(f"{shown(path)} is not inside {self.path}, and nothing else may be changed here")
        if found.relative_to(self.path).parts[0] in (LOCK, LIVE, UNDO):
            raise BadInput(f"{shown(path)} is the steward's own")
        return found

    def write(self, path: str, text: str) -> None:
        """Makes a file and its folders, moved into place."""
        target = self.inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, "wb") as stream:
            stream.write(text.encode("utf-8"))

    def remove(self, path: str) -> None:
        """Removes a file, a link or a whole folder. A missing one is fine."""
        target = self.inside(path)
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            from shutil import rmtree  # here and below: a steward starts without what it may never need

            rmtree(target)
        else:
            target.unlink()

    @property
    def free_bytes(self) -> int:
        """What may still be written here."""
        about = os.statvfs(self.path)
        return about.f_bavail * about.f_frsize


def expanded(path: str) -> Path:
    """With `~` as a shell would have it; a home that does not exist is a name like any other."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (Path.expanduser raises for those)


def open_now(path: str, flags: int) -> int:
    """An opener for `open` that never waits, as for a pipe that somebody put in a file's place."""
    return os.open(path, flags | os.O_NONBLOCK)


def tail(path: Path, lines: int) -> List[str]:
    """The last lines of a file; no more than `TAIL_BYTES` of it are read."""
    with open(path, "rb", opener=open_now) as stream:  # noqa: PTH123  (Path.open takes no opener)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        found = stream.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    if size > TAIL_BYTES and len(found) > 1:
        del found[0]  # begins somewhere within
    return found[-lines:] if lines else []


def sums(folder: Path) -> Dict[str, Dict[str, Any]]:
    """Size and SHA-256 of every plain file under a folder, by its path in there."""
    import hashlib

    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    found = {}
    for path in sorted(folder.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode):
            digest, size = hashlib.sha256(), 0
            with path.open("rb") as stream:
                for chunk in iter(lambda: stream.read(_CHUNK), b""):
                    digest.update(chunk)
                    size += len(chunk)
            found[path.relative_to(folder).as_posix()] = {"size": size, "sha256": digest.hexdigest()}
    return found
