"""GPU vendors behind the registry: which one opens a device, and what is reported when none does."""

from __future__ import annotations

from typing import cast

import pytest

from driple.agents.sources.gpu import registry
from driple.agents.sources.gpu.base import GpuDevice, GpuVendor
from driple.agents.sources.gpu.nvidia import Nvidia
from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.protocol.requests import GpuInfo


class Fake(GpuVendor):
    binding = "no_such_module"
    devices: tuple[str, ...] = ()
    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1

    def list_devices(self) -> list[GpuInfo]:
        return [GpuInfo(index=i, uuid=uuid, name="a GPU") for i, uuid in enumerate(self.devices)]

    def open(self, wanted: str) -> GpuDevice:
        if wanted not in self.devices:
            raise UnknownName("GPU", wanted, self.devices)
        return cast("GpuDevice", f"device {wanted}")

    def close(self) -> None:
        type(self).opened -= 1


class Red(Fake):
    devices = ("red",)


class Green(Fake):
    devices = ("green", "blue")


class Broken(Fake):
    def __init__(self) -> None:
        raise BadInput("no driver")


def test_a_device_is_opened_by_the_vendor_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "VENDORS", (Broken, Red, Green))
    assert registry.open_gpu("blue") == cast("GpuDevice", "device blue")
    assert (Red.opened, Green.opened) == (0, 1)  # the device keeps its library
    assert [gpu.uuid for gpu in registry.list_gpus()] == ["red", "green", "blue"]
    with pytest.raises(UnknownName, match="black"):
        registry.open_gpu("black")
    registry.import_bindings()  # a missing one is no error


def test_without_any_library_the_first_vendors_remedy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "VENDORS", (Broken, Broken))
    for call in (registry.list_gpus, lambda: registry.open_gpu("0")):
        with pytest.raises(BadInput, match="no driver"):
            call()


def test_nvidia_is_registered() -> None:
    assert Nvidia in registry.VENDORS
