"""Readers and report pages are found through their registries: one module and one line each."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

from driple.pipeline import readers, reports
from driple.pipeline.readers import registry as reader_registry
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.readers.registry import READERS, read_source
from driple.pipeline.reports.registry import PAGES
from driple.pipeline.traces.series import Series


def entries(package: ModuleType, name: str) -> list[object]:
    modules = (
        importlib.import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)
    )
    return [getattr(module, name) for module in modules if hasattr(module, name)]


@pytest.mark.parametrize(("package", "name", "registry"), [(readers, "READER", READERS), (reports, "PAGE", PAGES)])
def test_every_module_with_an_entry_is_registered(package: ModuleType, name: str, registry: tuple[object, ...]) -> None:
    found = entries(package, name)
    assert len(found) >= 3
    assert {id(entry) for entry in found} == {id(entry) for entry in registry}


def test_a_reader_that_is_added_reads_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    def read(given: TraceInput) -> Source:
        return Source("a new format", (Series("x", np.arange(5.0), np.arange(5.0), ""),))

    added = Reader(lambda given: given.start.startswith(b"NEW"), read)
    monkeypatch.setattr(reader_registry, "READERS", (added, *READERS))
    (tmp_path / "new").write_bytes(b"NEW 1")
    (tmp_path / "old").write_text("time,v\n1,2\n2,3\n")
    assert read_source(tmp_path / "new", None, (), ()).what == "a new format"
    assert read_source(tmp_path / "old", None, (), ()).what == "CSV"
