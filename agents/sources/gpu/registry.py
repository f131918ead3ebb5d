"""GPU vendors. To add one, write its file with a GpuVendor (base.py) and add it to VENDORS."""

from __future__ import annotations

from contextlib import suppress
from typing import List, Tuple, Type

from driple.agents.light_import import import_light
from driple.agents.sources.gpu.base import GpuDevice, GpuVendor
from driple.agents.sources.gpu.nvidia import Nvidia
from driple.contracts.errors import BadInput
from driple.contracts.protocol.requests import GpuInfo

VENDORS: Tuple[Type[GpuVendor], ...] = (Nvidia,)


def import_bindings() -> None:
    """Imports the bindings of all vendors; a vendor reports later what a missing one means."""
    for binding in filter(None, (vendor.binding for vendor in VENDORS)):
        with suppress(ImportError):
            import_light(binding)


def list_gpus() -> List[GpuInfo]:
    """All devices of all vendors. Raises BadInput if no vendor's library works."""
    libraries, errors = _libraries()
    if not libraries:
        raise errors[0]
    return [gpu for library in libraries for gpu in library.list_devices()]


def open_gpu(wanted: str) -> GpuDevice:
    """Opens a device by index or UUID at the first vendor that has it. Raises BadInput."""
    libraries, errors = _libraries()
    unknown: List[BadInput] = []
    device = None
    for library in libraries:
        try:
            device = device or library.open(wanted)
            continue
        except BadInput as error:
            unknown.append(error)
        library.close()
    if device is None:
        raise (unknown + errors)[0]
    return device


def _libraries() -> Tuple[List[GpuVendor], List[BadInput]]:
    """The libraries that work here, and why the others do not."""
    libraries: List[GpuVendor] = []
    errors: List[BadInput] = []
    for vendor in VENDORS:
        try:
            libraries.append(vendor())
        except BadInput as error:
            errors.append(error)
    return libraries, errors
