"""Journal of running processes, so that the next agent can end what a killed agent left behind.

When an agent is killed with -9, the kernel kills the processes that it started, but not their descendants.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Set

from driple.agents.daemon.procfs import Family, Process, descendants, kill, processes, token_of
from driple.agents.daemon.work_dir import LIVE

_PATIENCE_S = 5.0
_PAUSE_S = 0.02


class Record(NamedTuple):
    """One process. The record is written before the process starts."""

    name: str
    token: str
    boot_id: str
    pid_space: str  # PID namespace of the numbers below: a recreated host can have the same boot id
    pid: Optional[int] = None  # also the number of its session. None until it runs
    start: Optional[int] = None


def boot_id() -> str:
    """Changes when the machine boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Journal:
    """The folder of records."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._folder = work / LIVE
        self._folder.mkdir(exist_ok=True)
        self._boot_id = boot_id()
        self._pid_space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  (it is no path)

    def keep(self, name: str, token: str, family: Optional[Family] = None) -> None:
        """Writes or rewrites a record. Raises OSError."""
        pid, start = (None, None) if family is None else (family.pid, family.start)
        record = Record(name, token, self._boot_id, self._pid_space, pid, start)
        beside = self._folder / f".{token}"
        try:
            beside.write_text(json.dumps(record._asdict()), encoding="utf-8")
            beside.replace(self._path(token))
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise

    def drop(self, token: str) -> None:
        """Removes a record: the process and its descendants are gone."""
        with suppress(FileNotFoundError):
            self._path(token).unlink()

    def end_left(self) -> List[str]:
        """Ends the processes in the records of an earlier agent. Returns the names of those that were still running."""
        left = [record for record in self._read() if record.boot_id == self._boot_id]
        names: Set[str] = set()
        end = time.monotonic() + _PATIENCE_S
        while left:
            victims = self._victims([record for record in left if record.pid_space == self._pid_space])
            names.update(victims)
            if not any(victims.values()) or time.monotonic() > end:
                break
            for pids in victims.values():
                kill(pids)
            time.sleep(_PAUSE_S)
        for path in self._folder.iterdir():
            path.unlink()
        return sorted(names)

    def _victims(self, left: List[Record]) -> Dict[str, Set[int]]:
        """Living processes by name of their record."""
        table = processes()
        # An agent can be started by a process of another agent: it must not end its own ancestors.
        spared, pid = set(), os.getpid()
        while pid in table and pid not in spared:
            spared.add(pid)
            pid = table[pid].parent
        tokens = {pid: token_of(pid) for pid in table if pid not in spared}
        found: Dict[str, Set[int]] = {}
        for record in left:
            roots = {pid for pid, token in tokens.items() if token == record.token}
            roots |= {pid for pid in tokens if self._in_session(record, pid, table)}
            living = {pid for pid in descendants(table, roots) - spared if pid in table and not table[pid].dead}
            if living:
                found.setdefault(record.name, set()).update(living)
        return found

    def _in_session(self, record: Record, pid: int, table: Dict[int, Process]) -> bool:
        """Whether a process belongs to the record's session, and not to a later one with the same number."""
        if record.pid is None or table[pid].session != record.pid:
            return False
        head = table.get(record.pid)
        if head is not None:
            return head.start == record.start
        # The leader is gone, as with every daemon, and numbers are reused: require more evidence.
        return self._uses_work(pid)

    def _uses_work(self, pid: int) -> bool:
        links = [Path(f"/proc/{pid}/cwd")]
        with suppress(OSError):
            links += Path(f"/proc/{pid}/fd").iterdir()
        for link in links:
            with suppress(OSError):
                if self._work in (target := Path(os.readlink(link))).parents or target == self._work:  # noqa: PTH115
                    return True
        return False

    def _read(self) -> List[Record]:
        records = []
        for path in self._folder.glob("*.json"):
            with suppress(OSError, ValueError, TypeError):  # a partial record from a full disk, or a foreign file
                records.append(Record(**json.loads(path.read_text(encoding="utf-8"))))
        return records

    def _path(self, token: str) -> Path:
        return self._folder / f"{token}.json"
