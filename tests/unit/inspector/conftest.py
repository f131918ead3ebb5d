"""The inspector's tests need torch: where there is none they are left out, and pytest's first lines say so."""

from __future__ import annotations

import importlib.util

MISSING = [name for name in ("torch", "safetensors", "scipy") if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"inspector: its tests are left out, there is no {' and no '.join(MISSING)}"] if MISSING else []
