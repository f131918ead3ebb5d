"""WorkDir: the agent's folder on a host. Nothing outside it is changed, and one agent at a time uses it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterable, List

from driple.contracts.errors import BadInput, shown
from driple.contracts.protocol.events import Busy
from driple.contracts.protocol.requests import FileSum
from driple.contracts.run_dir import replacing

LOCK, LIVE, UNDO = "lock", "live", "undo"
TAIL_BYTES = 65536

_CHUNK = 1 << 20
_OWNER_BYTES = 4096


class WorkDir:
    """The folder and operations on files in it."""

    def __init__(self, path: str) -> None:
        """Creates the folder. Raises OSError."""
        wanted = expanded(path)
        wanted.mkdir(parents=True, exist_ok=True)
        self.path = wanted.resolve()
        self._lock = -1

    def take(self, owner: str) -> bool:
        """Locks the folder for the life of this process. Returns False if another process has it."""
        if self._lock < 0:
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        about = {"owner": owner, "pid": os.getpid(), "since_real_s": time.time()}
        with suppress(OSError):  # on a full disk the agent must start too: to clean up
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, json.dumps(about).encode("ascii"), 0)
        return True

    def holder(self) -> Busy:
        """The agent that uses the folder, as far as it has written this."""
        try:
            found = json.loads(os.pread(self._lock, _OWNER_BYTES, 0))
            return Busy.read({key: found[key] for key in ("owner", "pid", "since_real_s")}, LOCK)
        except (BadInput, ValueError, KeyError, TypeError):  # not written yet
            return Busy(owner="unknown", pid=None, since_real_s=None)

    def under(self, path: str) -> Path:
        """A path to read; a relative one is under the folder."""
        return self.path / expanded(path)

    def inside(self, path: str) -> Path:
        """A path to write or remove. Raises BadInput if outside the folder (links resolved) or the agent's own."""
        wanted = Path(os.path.normpath(self.under(path)))
        # The last part is not resolved: a link is replaced or removed, not followed.
        try:
            found = wanted.parent.resolve() / wanted.name
        except (OSError, RuntimeError):  # links in a circle
            raise BadInput(f"{shown(path)} leads nowhere") from None
        if self.path not in found.parents:
            raise BadInput(f"{shown(path)} is not inside {self.path}, and nothing else may be changed here")
        if found.relative_to(self.path).parts[0] in (LOCK, LIVE, UNDO):
            raise BadInput(f"{shown(path)} belongs to the agent")
        return found

    def write(self, path: str, text: str) -> None:
        target = self.inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, "wb", follow=False) as stream:
            stream.write(text.encode("utf-8"))

    def remove(self, path: str) -> None:
        """Removes a file, a link or a folder, if it exists."""
        target = self.inside(path)
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            from shutil import rmtree  # here and below: keeps the start of the agent quick

            rmtree(target)
        else:
            target.unlink()

    @property
    def free_bytes(self) -> int:
        about = os.statvfs(self.path)
        return about.f_bavail * about.f_frsize


def expanded(path: str) -> Path:
    """Expands `~` as a shell does: an unknown user's stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (Path.expanduser raises for those)


def expand_arguments(argv: Iterable[str]) -> List[str]:
    """Expands `~/` at the start of each argument, as no shell does it."""
    return [str(expanded(word)) if word.startswith("~/") else word for word in argv]


def open_now(path: str, flags: int) -> int:
    """An opener for `open` that never blocks, not even on a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def tail(path: Path, lines: int) -> List[str]:
    """The last lines of a file; reads at most `TAIL_BYTES`."""
    with open(path, "rb", opener=open_now) as stream:  # noqa: PTH123  (Path.open takes no opener)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        found = stream.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    if size > TAIL_BYTES and len(found) > 1:
        del found[0]  # an incomplete line
    return found[-lines:] if lines else []


def sums(folder: Path) -> Dict[str, FileSum]:
    """Size and SHA-256 of every regular file under a folder, by relative path."""
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
            found[path.relative_to(folder).as_posix()] = FileSum(size=size, sha256=digest.hexdigest())
    return found
