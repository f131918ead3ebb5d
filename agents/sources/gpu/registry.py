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
    for vendor in VENDORS:
        with suppress(ImportError):
            import_light(vendor.binding)


def list_gpus() -> List[GpuInfo]:
    """All devices of all vendors. Raises BadInput if no vendor's library works."""
    found: List[GpuInfo] = []
    errors: List[BadInput] = []
    for vendor in VENDORS:
        try:
            library = vendor()
        except BadInput as error:
            errors.append(error)
            continue
        found += library.list_devices()
        library.close()
    if len(errors) == len(VENDORS):
        raise errors[0]
    return found


def open_gpu(wanted: str) -> GpuDevice:
    """Opens a device by index or UUID at the first vendor that has it. Raises BadInput."""
    errors: List[BadInput] = []
    for vendor in VENDORS:
        try:
            library = vendor()
        except BadInput as error:
            errors.append(error)
            continue
        try:
            return library.open(wanted)
        except BadInput as error:
            library.close()
            errors.insert(0, error)  # of a library that works: it names the devices that there are
    raise errors[0]
