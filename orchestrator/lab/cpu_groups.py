"""Control groups that give each host of a lab a fixed share of the processors, in cgroup v1 and v2.

The groups are not part of the lab's namespaces, so they outlive processes that are killed. Their paths are stored in
the lab's folder before they are created; whoever removes the folder removes them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from driple.orchestrator.lab.layout import GROUPS_FILE, LabPlan

PROCESSES = "cgroup.procs"
_SUBTREE = "cgroup.subtree_control"
_REMOVE_S = 5.0
V1, V2 = "cgroup v1", "cgroup v2"


class GroupError(Exception):
    """The groups cannot be created; the text says why, on one line."""


@dataclass(frozen=True)
class Hierarchy:
    """Where groups of some controllers are created."""

    version: str  # V1 or V2
    parent: Path
    controllers: tuple[str, ...]


class CpuGroups:
    """The groups of a lab: one for each host, in each hierarchy."""

    def __init__(self, plan: LabPlan, label: str, record: Path) -> None:
        """`label` is unique to the lab; paths are stored in `record`. Raises GroupError, and then nothing is left."""
        assert plan.cores_per_host is not None
        self.cores = plan.cores_per_host
        self.period_us = plan.share_period_us
        self._plan = plan
        self._processors = sorted(os.sched_getaffinity(0))
        self._bound = plan.bind_hosts and self.cores <= 1
        self._record = record
        fault = "no control groups for processors are mounted"
        for hierarchies in _choices(("cpu", "cpuset") if self._bound else ("cpu",)):
            self._hierarchies = hierarchies
            self._bases = [each.parent / label for each in hierarchies]
            try:
                self._create()
                return
            except OSError as error:
                fault = f"{error.filename}: {error.strerror}"
                remove_recorded(record.parent)
        raise GroupError(fault)

    @property
    def made_by(self) -> str:
        return self._hierarchies[0].version

    def core(self, name: str) -> int | None:
        """The processor to which a host is bound; None if to none."""
        if not self._bound:
            return None
        return self._processors[(self._plan.number(name) - 1) % len(self._processors)]

    def process_files(self, name: str) -> tuple[str, ...]:
        """The files that a process of the host must be written to."""
        return tuple(str(base / name / PROCESSES) for base in self._bases)

    def _create(self) -> None:
        folders = [base / name for base in self._bases for name in self._plan.names] + self._bases
        self._record.write_text(json.dumps([str(folder) for folder in folders]))
        for hierarchy, base in zip(self._hierarchies, self._bases, strict=True):
            self._create_base(hierarchy, base)
            for name in self._plan.names:
                (base / name).mkdir()
                for file, value in self._limits(hierarchy, base, name).items():
                    _write(base / name / file, value)

    def _create_base(self, hierarchy: Hierarchy, base: Path) -> None:
        if hierarchy.version == V2:
            words = " ".join(f"+{controller}" for controller in hierarchy.controllers)
            _write(hierarchy.parent / _SUBTREE, words)
            base.mkdir()
            _write(base / _SUBTREE, words)
            return
        base.mkdir()
        if "cpuset" in hierarchy.controllers:  # empty in a new group, and then it accepts no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                _write(base / file, (hierarchy.parent / file).read_text().strip())

    def _limits(self, hierarchy: Hierarchy, base: Path, name: str) -> Mapping[str, str]:
        quota_us = round(self.cores * self.period_us)
        limits: dict[str, str] = {}
        if "cpu" in hierarchy.controllers and hierarchy.version == V2:
            limits["cpu.max"] = f"{quota_us} {self.period_us}"
        elif "cpu" in hierarchy.controllers:
            limits |= {"cpu.cfs_period_us": str(self.period_us), "cpu.cfs_quota_us": str(quota_us)}
        if "cpuset" in hierarchy.controllers:
            limits["cpuset.cpus"] = str(self.core(name))
            if hierarchy.version == V1:
                limits["cpuset.mems"] = (base / "cpuset.mems").read_text().strip()
        return limits

    def remove(self) -> None:
        """Removes the groups. Their processes have ended."""
        remove_recorded(self._record.parent)


def remove_recorded(folder: Path) -> bool:
    """Removes the control groups of the lab in `folder`. False if processes of them are still there."""
    try:
        left = [Path(name) for name in json.loads((folder / GROUPS_FILE).read_text())]
    except (OSError, ValueError, TypeError):  # none, or the lab was killed before it created one
        return True
    deadline = time.monotonic() + _REMOVE_S
    while left:
        for group in list(left):
            try:
                group.rmdir()  # not rmtree: the files of a group cannot be removed, and vanish with it
            except FileNotFoundError:
                pass
            except OSError:
                continue
            left.remove(group)
        if left:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
    return True


def _write(path: Path, value: str) -> None:
    """Raises OSError with the name of the file, which a failed write does not have."""
    try:
        with path.open("w") as stream:
            stream.write(value)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _choices(controllers: Sequence[str]) -> Iterator[tuple[Hierarchy, ...]]:
    """Hierarchies in which the groups could be created, best first."""
    mounts = list(_mounts(Path("/proc/self/mountinfo").read_text()))
    own = dict(_own_groups(Path("/proc/self/cgroup").read_text()))
    v1 = {name: (mount, root) for kind, mount, root, names in mounts if kind == "cgroup" for name in names}
    if all(name in v1 and name in own for name in controllers):
        yield tuple(Hierarchy(V1, _inside(*v1[name], own[name]), (name,)) for name in controllers)
    for kind, mount, root, _ in mounts:
        if kind == "cgroup2" and "" in own:
            # A group with processes cannot have groups with limits, unless it is the root: those above may.
            group = _inside(mount, root, own[""])
            for parent in (group, *group.parents):
                if not parent.is_relative_to(mount):
                    break
                with suppress(OSError):
                    if set(controllers) <= set((parent / "cgroup.controllers").read_text().split()):
                        yield (Hierarchy(V2, parent, tuple(controllers)),)


def _mounts(text: str) -> Iterator[tuple[str, Path, str, list[str]]]:
    """Kind, place, root within the hierarchy, and controllers of each mounted hierarchy."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, _, options) = before.split(), after.split()[:3]
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(words[4]), words[3], options.split(",")


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    """This process's group by controller; that of cgroup v2 has the name ''."""
    for line in text.splitlines():
        _, names, group = line.split(":", 2)
        for name in names.split(","):
            yield name, group


def _inside(mount: Path, root: str, group: str) -> Path:
    """The folder of a group where a hierarchy is mounted from `root` on, as in a container."""
    below = os.path.relpath(group, root) if group.startswith(root) else "."
    return mount / below if below != "." else mount
