"""contracts/ travels to hosts inside the sampler: standard library only, and readable by an old Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from old_pythons import old_python

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


@pytest.mark.skipif(old_python(8, 9) is None, reason="neither Python 3.8 nor 3.9 is installed")
def test_imports_in_the_oldest_python(checkout: Path) -> None:
    modules = ", ".join(f"driple.contracts.{path.stem}" for path in sources(checkout) if path.stem != "__init__")
    result = subprocess.run(
        [str(old_python(8, 9)), "-c", f"import {modules}"],
        cwd=checkout / "typings",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
