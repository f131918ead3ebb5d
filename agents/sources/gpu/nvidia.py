"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from driple.agents.sources.gpu.base import GpuDevice, GpuVendor, Reading, SampleBuffer
from driple.agents.sources.gpu.nvml import CODES, Nvml, answer, gauge, readings, text
from driple.agents.sources.gpu.nvml_samples import Buffer
from driple.agents.sources.gpu.sample_clock import Stamps
from driple.contracts.protocol.requests import GpuInfo

log = logging.getLogger(__name__)


class Nvidia(GpuVendor):
    """NVML; a device is a GPU or a MIG instance."""

    binding = "pynvml"
    distribution = "nvidia-ml-py"

    def __init__(self) -> None:
        self._nvml = Nvml()

    def list_devices(self) -> List[GpuInfo]:
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
        nvml = self._nvml
        handle = nvml.device(wanted)
        utilisation = gauge(nvml, handle)
        plain: Dict[str, Reading] = {}
        for column, ways in readings(nvml, handle).items():
            # A call that fails in another way than by being absent may work later.
            way = next((way for way in ways if answer(way.call) not in CODES.absent), None)
            if way is not None:
                plain[column] = way
        return GpuDevice(
            facts=self._facts(handle),
            buffers=partial(self._buffers, handle),
            gauge=utilisation if answer(utilisation.call) not in CODES.absent else None,
            readings=plain,
            lost_codes=CODES.lost,
            library="NVML",
            close=nvml.close,
        )

    def close(self) -> None:
        self._nvml.close()

    def _buffers(self, handle: Any, stamps: Stamps, now_ns: int) -> List[Optional[SampleBuffer]]:
        py = self._nvml.py
        kinds = (py.NVML_GPU_UTILIZATION_SAMPLES, py.NVML_MEMORY_UTILIZATION_SAMPLES)
        buffers = [Buffer(self._nvml, handle, kind, stamps) for kind in kinds]
        return [buffer if buffer.open(now_ns) == 0 else None for buffer in buffers]

    def _facts(self, handle: Any) -> Dict[str, Any]:
        py = self._nvml.py
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
                log.debug("GPU: %s is not reported: %s", key, error)
                found[key] = None
        return found
