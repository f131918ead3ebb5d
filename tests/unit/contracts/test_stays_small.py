"""contracts/ travels to hosts inside the sampler: standard library only, and readable by an old Python."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OLDEST = (3, 8)


def sources(checkout: Path) -> list[Path]:
    found = sorted((checkout / "contracts").glob("*.py"))
    assert len(found) >= 10
    return found


def test_only_the_standard_library_and_itself_is_imported(checkout: Path) -> None:
    for path in sources(checkout):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                ours = name.startswith("driple.contracts")
                assert ours or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_syntax_of_the_oldest_python(checkout: Path) -> None:
    for path in sources(checkout):
        ast.parse(path.read_text(), feature_version=OLDEST)


def old_python() -> str | None:
    """An interpreter as old as a host's may be, if this machine has one that starts."""
    for name in ("python3.8", "python3.9"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-V"], capture_output=True, timeout=60).returncode == 0:
            return found
    return None


@pytest.mark.skipif(old_python() is None, reason="no python3.8 or python3.9 on this machine")
def test_imports_in_the_oldest_python(checkout: Path) -> None:
    modules = ", ".join(f"driple.contracts.{path.stem}" for path in sources(checkout) if path.stem != "__init__")
    result = subprocess.run(
        [str(old_python()), "-c", f"import {modules}"],
        cwd=checkout / "typings",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
