"""Gives the hosts of a lab their share of the processors: control groups, and a pacer on each processor."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from driple.orchestrator.lab.cpu_groups import CpuGroups, GroupError
from driple.orchestrator.lab.layout import LabFiles, LabPlan


class HostShares:
    """The shares of all hosts of a lab. Without control groups, none, and the reason."""

    def __init__(self, plan: LabPlan, files: LabFiles, label: str) -> None:
        self._plan = plan
        self._groups: CpuGroups | None = None
        self._pacers: list[subprocess.Popen[bytes]] = []
        self._priority = ""
        self.fault: str | None = None
        if plan.cores_per_host is None:
            return
        try:
            self._groups = CpuGroups(plan, label, files.groups)
        except GroupError as error:
            self.fault = f"this user cannot give hosts a share of the processors ({error}); run as root"
            return
        if plan.pace_us is not None:
            self._start_pacers(plan.pace_us)

    def describe(self) -> dict[str, Any]:
        """For clients: the fault, and by host the files to join and the record for run.json."""
        groups, plan = self._groups, self._plan
        if groups is None:
            return {"fault": self.fault, "hosts": {}}
        common = {
            "cores": groups.cores,
            "period_ms": groups.period_us / 1000,
            "made_by": groups.made_by,
            "pace_ms": plan.pace_us / 1000 if plan.pace_us is not None else None,
            "pace_priority": self._priority,
        }
        hosts = {
            name: {"files": groups.process_files(name), "record": {**common, "core": groups.core(name)}}
            for name in plan.names
        }
        return {"fault": None, "hosts": hosts}

    def end(self) -> None:
        """Removes the groups, once their processes have ended."""
        for pacer in self._pacers:
            pacer.kill()
            pacer.wait()
        if self._groups is not None:
            self._groups.remove()

    def _start_pacers(self, pace_us: int) -> None:
        """They end with the supervisor, as every process of the lab."""
        for core in sorted(os.sched_getaffinity(0)):
            words = [sys.executable, "-m", "driple.orchestrator.lab.pacer", str(pace_us), str(core)]
            pacer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/")
            self._pacers.append(pacer)
        said = set()
        for pacer in self._pacers:
            assert pacer.stdout is not None
            said.add(pacer.stdout.readline().decode().strip())
            pacer.stdout.close()
        self._priority = " and ".join(sorted(said))
