"""Interface of a GPU vendor: a library that lists and opens devices. See registry.py for how to add one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from driple.agents.sources.gpu.sample_clock import Stamps
from driple.contracts.protocol.requests import GpuInfo

COLUMNS = (
    "gpu_util_pct",
    "gpu_mem_util_pct",
    "gpu_mem_used_bytes",
    "gpu_sm_clock_mhz",
    "gpu_power_mw",
    "gpu_temperature_c",
)
UTILISATION = 2  # the first two columns; the rest are plain readings

COUNTS = ("samples", "sample_gaps", "overruns", "misdated", "errors")  # counters of a sample buffer
SILENT = 3  # a device that gave no sample for more than this many periods is silent


class Lost(Exception):
    """The device fell off the bus."""


class Reading(NamedTuple):
    """A number of the device: a call that returns 0 or an error code, and a function that returns its result."""

    call: Callable[[], int]
    take: Callable[[], int]


class Gauge(NamedTuple):
    """As Reading, for the GPU's and the memory's utilisation in percent, averaged over the device's last window."""

    call: Callable[[], int]
    take: Callable[[], Tuple[int, int]]


class SampleBuffer(Protocol):
    """The driver's buffered utilisation samples, each with the time at which the device took it."""

    newest_ns: int
    period_us: int
    capacity: int
    counts: Dict[str, int]
    diffs_us: Deque[int]  # time between the last samples

    def fetch(self, now_ns: int) -> Tuple[List[int], List[float]]:
        """New samples: monotonic times in ns, oldest first, and values. Raises Lost."""

    def forget(self) -> None:
        """The host's clock was set: the next fetch requests everything."""

    def is_dry(self, now_ns: int, patience_ns: int) -> bool:
        """Whether samples are overdue."""

    def span_s(self) -> float:
        """Seconds of samples that the buffer holds; 0 if unknown."""


class GpuDevice(NamedTuple):
    """A device that is open. What it cannot report is None or absent, never 0."""

    facts: Dict[str, Any]  # `index`, `uuid`, `device`, `driver`, `mig`; None where unknown
    buffers: Callable[[Stamps, int], List[Optional[SampleBuffer]]]
    """Opens the samples of the GPU's and of the memory's utilisation; the second argument is the time now."""
    gauge: Optional[Gauge]
    readings: Dict[str, Reading]  # by plain column
    lost_codes: Sequence[int]  # error codes that mean that the device is gone
    library: str  # for messages about other error codes
    close: Callable[[], None]


class GpuVendor(ABC):
    """A vendor's library. Creating it loads the library and raises BadInput with the remedy if that fails."""

    binding = ""
    """Python module of the library; the bundle contains it. Empty if ctypes is enough."""
    distribution = ""
    """The package that contains the binding, for messages."""

    @abstractmethod
    def list_devices(self) -> List[GpuInfo]:
        """All devices of this vendor."""

    @abstractmethod
    def open(self, wanted: str) -> GpuDevice:
        """Opens a device by index or UUID; it then owns the library. Raises BadInput or UnknownName."""

    @abstractmethod
    def close(self) -> None:
        """Releases the library."""
