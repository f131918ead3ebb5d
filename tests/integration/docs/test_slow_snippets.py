"""Snippets of the documentation that train or need TensorFlow. tests/unit/test_docs.py runs all others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

_spec = importlib.util.spec_from_file_location(
    "doc_snippets", Path(__file__).resolve().parents[3] / "scripts/doc_snippets.py"
)
assert _spec is not None and _spec.loader is not None
snippets: Any = importlib.util.module_from_spec(_spec)
sys.modules["doc_snippets"] = snippets  # dataclasses look their module up
_spec.loader.exec_module(snippets)
BLOCKS = [block for page in snippets.pages() for block in snippets.blocks(page)]


@pytest.mark.parametrize("block", [b for b in BLOCKS if "slow" in b.marks], ids=lambda block: block.place)
def test_a_slow_python_snippet_runs(block: Any, tmp_path: Path) -> None:
    snippets.workspace(tmp_path, block.page)
    program = tmp_path / "snippet_of_the_page.py"
    program.write_text(snippets.script([block]))
    done = snippets.execute(f"{sys.executable} {program}", tmp_path)
    assert done.returncode == 0, done.stderr


NEEDED = [(block, mark.partition("=")[2]) for block in BLOCKS for mark in block.marks if mark.startswith("needs=")]


@pytest.mark.parametrize(("block", "package"), NEEDED, ids=lambda one: getattr(one, "place", one))
def test_a_snippet_that_needs_a_package_runs_where_it_is_installed(block: Any, package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    snippets.workspace(tmp_path, block.page)
    program = tmp_path / "snippet_of_the_page.py"
    program.write_text(snippets.script([block]))
    done = snippets.execute(f"{sys.executable} {program}", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.tf
@pytest.mark.parametrize("block", [b for b in BLOCKS if "tf" in b.marks], ids=lambda block: block.place)
def test_a_command_that_needs_tensorflow_runs(block: Any, tmp_path: Path) -> None:
    snippets.workspace(tmp_path, block.page)
    for command in snippets.commands(block):
        done = snippets.execute(command.text, tmp_path)
        assert done.returncode == snippets.exit_code(block), done.stderr
        assert "on cpu-p2w2-1g" in done.stdout and "CPU utilisation" in done.stdout
