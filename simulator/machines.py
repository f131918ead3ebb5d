"""Cluster: which machine each task is on, and which resources a transfer between two tasks uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driple.simulator.host_model import HostModel


@dataclass(frozen=True)
class Cluster:
    """Machines that are joined by links of one rate."""

    machine: Mapping[str, int]
    """The machine of each task."""
    host: HostModel
    link_bytes_per_s: float | None
    """Payload rate of a machine's link, in each direction; None on one machine."""
    one_processor: bool = False
    """All machines share the processors of one real machine, as the hosts of a lab do."""
    gpu: bool = True
    """Workers compute on GPUs, so what they send and receive crosses PCIe."""

    def path(self, source: str, target: str, *, direct: bool = False) -> dict[str, float]:
        """Seconds of each resource per byte from one task to another, without those of the tasks themselves.

        `direct` is from GPU to GPU, past the memory of their hosts.
        """
        first, last = self.machine[source], self.machine[target]
        used: dict[str, float] = {}
        if first != last and self.link_bytes_per_s:
            used |= {f"out {first}": 1 / self.link_bytes_per_s, f"in {last}": 1 / self.link_bytes_per_s}
        if self.gpu and self.host.pcie_bytes_per_s and not direct:
            for task, end, way in ((source, first, "up"), (target, last, "down")):
                if task.startswith("worker"):
                    used[f"pcie {way} {end}"] = 1 / self.host.pcie_bytes_per_s
        return used

    def processors(self, cpu_s: Mapping[str, float]) -> dict[str, float]:
        """Seconds of the processors that processor seconds of tasks take, where these are a limit."""
        used: dict[str, float] = {}
        if self.host.cores:
            for task, seconds in cpu_s.items():
                name = f"cores {0 if self.one_processor else self.machine[task]}"
                used[name] = used.get(name, 0.0) + seconds / self.host.cores
        return used
