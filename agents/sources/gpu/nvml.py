"""NVML through its official binding: library, devices, return codes, plain readings. The only importer of pynvml."""

from __future__ import annotations

import ctypes
import importlib
import logging
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from driple.agents.sources.gpu.base import Gauge, Reading
from driple.contracts.errors import BadInput, UnknownName

log = logging.getLogger(__name__)


class Codes(NamedTuple):
    """Return codes of NVML."""

    absent: Tuple[int, ...] = (3, 13, 25)
    """NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH: the device will never report it."""
    empty: Tuple[int, ...] = (6, 21)  # NOT_FOUND, NO_DATA: nothing newer in the buffer
    small: int = 7  # INSUFFICIENT_SIZE
    lost: Tuple[int, ...] = (15, 16)  # GPU_IS_LOST, RESET_REQUIRED
    missing: int = 13


CODES = Codes()

_REMEDIES = {
    9: "the NVIDIA driver is not loaded: see whether `nvidia-smi` works, load it with `modprobe nvidia`",
    12: "this host has no NVML library (libnvidia-ml.so.1): install the NVIDIA driver, or start the container with "
    "its `utility` capability",
    4: "no permission to ask the NVIDIA driver: see the owner and mode of /dev/nvidiactl",
    18: "the NVIDIA library and kernel module are of different versions: load the new module, or reboot",
}


class Nvml:
    """The library, through the official binding: its loader, its structures, and its functions called directly.

    pynvml's own wrappers make new ctypes objects at every call and a list of structures per GetSamples. Called with
    places kept from call to call, the gauge costs 0.6 us in place of 1.4, and 120 samples 9 us in place of 240.
    """

    def __init__(self) -> None:
        try:
            self.py: Any = importlib.import_module("pynvml")  # here, so that a host without GPUs does not pay 5 MB
        except ImportError as error:
            raise BadInput("--gpu needs the Python binding of NVML: pip install nvidia-ml-py") from error
        try:
            self.py.nvmlInit()
        except self.py.NVMLError as error:
            cause = _REMEDIES.get(error.value, f"NVML does not start: {error}")
            raise BadInput(f"no GPU can be sampled: {cause}; or leave out --gpu") from error

    def close(self) -> None:
        """Releases the library; NVML counts its users."""
        try:
            self.py.nvmlShutdown()
        except self.py.NVMLError as error:
            log.debug("nvmlShutdown: %s", error)

    def function(self, name: str) -> Callable[..., int]:
        """A C function that returns a code; for one that this driver lacks, a function that returns `missing`."""
        try:
            found: Callable[..., int] = getattr(self.py.nvmlLib, name)
            return found
        except AttributeError:
            return lambda *_: CODES.missing

    def known(self) -> List[str]:
        names = []
        for index in range(self.py.nvmlDeviceGetCount()):
            names.append(str(index))
            try:
                names.append(text(self.py.nvmlDeviceGetUUID(self.py.nvmlDeviceGetHandleByIndex(index))))
            except self.py.NVMLError as error:  # a GPU that is lost still has its index
                log.debug("GPU %d has no UUID: %s", index, error)
        return names

    def device(self, wanted: str) -> Any:
        """The handle of a GPU named by index or UUID (`GPU-...`, or `MIG-...` for a part of one)."""
        try:
            if wanted.isascii() and wanted.isdigit():
                # The binding cuts an index to 32 bits: 4294967296 would be GPU 0.
                return self.py.nvmlDeviceGetHandleByIndex(min(int(wanted), 2**32 - 1))
            return self.py.nvmlDeviceGetHandleByUUID(wanted)
        except (self.py.NVMLError, ctypes.ArgumentError) as error:
            known = self.known()
            if not known:
                raise BadInput(f"unknown GPU {wanted!r}: the driver runs and sees no GPU on this host") from error
            if wanted in known:
                raise BadInput(f"GPU {wanted} cannot be sampled: {error}") from error
            raise UnknownName("GPU", wanted, known) from error


def text(value: Any) -> str:
    """A string of the binding; older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _field(place: Any, name: str, kind: Any) -> Any:
    """A field of a structure of the binding as a plain ctypes number: its own attributes cost ten times as much."""
    return kind.from_buffer(place, getattr(type(place), name).offset)


def readings(nvml: Nvml, handle: Any) -> Dict[str, List[Reading]]:
    """The ways to each plain column, best first."""
    py, uint, by = nvml.py, ctypes.c_uint, ctypes.byref

    # v1's `used` includes memory that the driver reserves; v2 does not.
    memory_2, memory_1 = py.c_nvmlMemory_v2_t(), py.c_nvmlMemory_t()
    memory_2.version = py.nvmlMemory_v2
    used_2, used_1 = (_field(place, "used", ctypes.c_ulonglong) for place in (memory_2, memory_1))
    clock, power, celsius = uint(), uint(), uint()
    celsius_v = py.c_nvmlTemperature_v1_t() if hasattr(py, "c_nvmlTemperature_v1_t") else None

    def way(name: str, place: Any, *arguments: Any) -> Reading:
        return Reading(partial(nvml.function(name), handle, *arguments), lambda: place.value)

    found = {
        "gpu_mem_used_bytes": [
            way("nvmlDeviceGetMemoryInfo_v2", used_2, by(memory_2)),
            way("nvmlDeviceGetMemoryInfo", used_1, by(memory_1)),
        ],
        "gpu_sm_clock_mhz": [way("nvmlDeviceGetClockInfo", clock, uint(py.NVML_CLOCK_SM), by(clock))],
        "gpu_power_mw": [way("nvmlDeviceGetPowerUsage", power, by(power))],
        "gpu_temperature_c": [way("nvmlDeviceGetTemperature", celsius, uint(py.NVML_TEMPERATURE_GPU), by(celsius))],
    }
    if celsius_v is not None:  # announced to replace the other, which goes with CUDA 14
        celsius_v.version, celsius_v.sensorType = py.nvmlTemperature_v1, py.NVML_TEMPERATURE_GPU
        celsius_2 = _field(celsius_v, "temperature", ctypes.c_int)
        found["gpu_temperature_c"].append(way("nvmlDeviceGetTemperatureV", celsius_2, by(celsius_v)))
    return found


def answer(call: Callable[[], int]) -> int:
    """The code of a first call. NotSupported can be spurious, so the call is made up to three times."""
    code = call()
    for _ in range(2):
        if code in CODES.absent:
            code = call()
    return code


def gauge(nvml: Nvml, handle: Any) -> Gauge:
    """Utilisation as `nvidia-smi` shows it: an average over the device's last window."""
    place = nvml.py.c_nvmlUtilization_t()
    gpu, memory = (_field(place, name, ctypes.c_uint) for name in ("gpu", "memory"))
    call = partial(nvml.function("nvmlDeviceGetUtilizationRates"), handle, ctypes.byref(place))
    return Gauge(call, lambda: (gpu.value, memory.value))
