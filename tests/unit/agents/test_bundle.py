from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from driple.agents import bundle as bundle_module
from driple.agents.bundle import archive
from driple.agents.sources.gpu.base import GpuVendor
from driple.agents.sources.gpu.nvidia import Nvidia
from driple.contracts.errors import BadInput

pytest.importorskip("pynvml")
ROOT = Path(__file__).parents[3]


def test_the_bundle_has_every_module_of_its_packages_with_its_source_and_compiled() -> None:
    with zipfile.ZipFile(io.BytesIO(archive())) as bundle:
        names = set(bundle.namelist())
        modules = [path for package in ("agents", "contracts") for path in (ROOT / package).rglob("*.py")]
        inside = {f"driple/{path.relative_to(ROOT).as_posix()}": path for path in modules}
        assert {"driple/agents/daemon/handlers.py", "driple/contracts/protocol/requests.py"} <= inside.keys() <= names
        assert {f"{name}c" for name in inside} <= names
        assert all(bundle.read(name) == path.read_bytes() for name, path in inside.items())
        assert {"__main__.py", "driple/__init__.py", "pynvml.py"} <= names


def test_the_same_sources_give_the_same_bytes() -> None:
    assert archive() == archive()


def test_a_vendor_may_do_without_a_binding_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(GpuVendor):
        pass

    class Missing(GpuVendor):
        binding, distribution = "no_such_module", "no-such-package"

    plain = archive()
    monkeypatch.setattr(bundle_module, "VENDORS", (Nvidia, Plain))
    assert archive() == plain
    monkeypatch.setattr(bundle_module, "VENDORS", (Nvidia, Missing))
    with pytest.raises(BadInput, match="no_such_module .* pip install no-such-package"):
        archive()
