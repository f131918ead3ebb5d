"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Optional

from driple.agents.sources.gpu.base import GpuDevice, GpuVendor, Reading, SampleBuffer
from driple.agents.sources.gpu.nvml import CODES, Nvml, NvmlGauge, answer, readings, text
from driple.agents.sources.gpu.nvml_samples import Buffer
from driple.agents.sources.gpu.sample_clock import Stamps
from driple.contracts.protocol.requests import GpuInfo

log = logging.getLogger(__name__)


class Nvidia(GpuVendor):
    """NVML."""

    binding = "pynvml"

    def __init__(self) -> None:
        self._nvml = Nvml()

    def list_devices(self) -> List[GpuInfo]:
        """See GpuVendor."""
        py = self._nvml.py
        found = []
        for index in range(py.nvmlDeviceGetCount()):
            gpu = GpuInfo(index=index, uuid=None, name=None)
            try:
                handle = py.nvmlDeviceGetHandleByIndex(index)
                gpu.uuid = text(py.nvmlDeviceGetUUID(handle))
                gpu.name = text(py.nvmlDeviceGetName(handle))
            except py.NVMLError as error:  # one that is lost must not hide the others
                gpu.error = str(error)
            found.append(gpu)
        return found

    def open(self, wanted: str) -> GpuDevice:
        """See GpuVendor."""
        return NvidiaDevice(self._nvml, self._nvml.device(wanted))

    def close(self) -> None:
        """See GpuVendor."""
        self._nvml.close()


class NvidiaDevice(GpuDevice):
    """A GPU, or a MIG instance."""

    library = "NVML"

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def describe(self) -> Dict[str, Any]:
        """See GpuDevice."""
        py, handle = self._nvml.py, self._handle
        asked: Dict[str, Callable[[], Any]] = {
            "index": lambda: py.nvmlDeviceGetIndex(handle),
            "uuid": lambda: text(py.nvmlDeviceGetUUID(handle)),
            "device": lambda: text(py.nvmlDeviceGetName(handle)),
            "driver": lambda: text(py.nvmlSystemGetDriverVersion()),
            "mig": lambda: bool(py.nvmlDeviceGetMigMode(handle)[0]),
        }
        found: Dict[str, Any] = {}
        for key, ask in asked.items():
            try:
                found[key] = ask()
            except py.NVMLError as error:
                log.debug("%s is not reported: %s", key, error)
                found[key] = None
        return found

    def buffers(self, stamps: Stamps, now_ns: int) -> List[Optional[SampleBuffer]]:
        """See GpuDevice."""
        py = self._nvml.py
        found: List[Optional[SampleBuffer]] = []
        for kind in (py.NVML_GPU_UTILIZATION_SAMPLES, py.NVML_MEMORY_UTILIZATION_SAMPLES):
            buffer = Buffer(self._nvml, self._handle, kind, stamps)
            found.append(buffer if buffer.open(now_ns) == 0 else None)
        return found

    def gauge(self) -> Optional[NvmlGauge]:
        """See GpuDevice."""
        gauge = NvmlGauge(self._nvml, self._handle)
        return gauge if answer(gauge.call) not in CODES.absent else None

    def readings(self) -> Dict[str, Reading]:
        """See GpuDevice. A call that fails in another way than by being absent may work later."""
        found: Dict[str, Reading] = {}
        for column, ways in readings(self._nvml, self._handle).items():
            way = next((way for way in ways if answer(way.call) not in CODES.absent), None)
            if way is not None:
                found[column] = way
        return found

    def is_lost(self, code: int) -> bool:
        """See GpuDevice."""
        return code in CODES.lost

    def close(self) -> None:
        """See GpuDevice."""
        self._nvml.close()
