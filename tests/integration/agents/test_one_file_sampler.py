"""The sampler as one file, on the Python it is run with and on the oldest that is here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from old_pythons import old_python

from driple.agents.bundle import build

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "driple-sample.pyz"
    build(path)
    return path


@pytest.mark.parametrize("minor", [None, 8, 9], ids=["this", "3.8", "3.9"])
def test_it_runs_with_nothing_installed(
    minor: int | None, archive: Path, tmp_path: Path, start: Callable[..., Any]
) -> None:
    found = Path(sys.executable) if minor is None else old_python(minor)
    if found is None:
        pytest.skip(f"Python 3.{minor} is not installed")
    # -I and an empty environment: the host has neither this project nor anything of ours.
    options = ["--hz", "100", "--for", "0.5", "--nic", "lo", "--flows", "10", "--pid", str(os.getpid())]
    process = start(found, "-I", archive, *options, "--out", tmp_path / "x.parquet", "--json", env={})
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    summary = json.loads(stdout)
    assert summary["stopped_by"] == "duration"
    assert summary["loop"]["peak_memory_bytes"] < 30_000_000
    pq = pytest.importorskip("pyarrow.parquet")
    assert pq.read_metadata(tmp_path / "x.parquet").num_rows == summary["files"][str(tmp_path / "x.parquet")]


def test_it_carries_pynvml_and_loads_it_lightly(archive: Path, start: Callable[..., Any]) -> None:
    script = (
        f"import sys; sys.path[:0] = [{str(archive)!r}]\n"
        "from driple.agents.light_import import import_light\n"
        "from driple.agents.sampler.ticker import own_usage\n"
        "import driple.agents.sampler.session\n"
        "import_light('pynvml'); import pynvml\n"
        "assert pynvml.nvmlInit\n"
        "print(own_usage()[1])\n"
        "try: import_light('no_such_module')\n"
        "except ImportError: print('none')\n"
    )
    process = start(sys.executable, "-I", "-S", "-c", script, env={})
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    memory, none = stdout.split()
    assert none == "none"
    assert int(memory) < 30_000_000


def test_it_knows_its_version_and_says_one_line_for_bad_input(archive: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-I", "-S", str(archive)]
    result = subprocess.run([*run, "--version"], capture_output=True, text=True, timeout=60, env={})
    assert result.stdout.startswith("driple-sample ")
    result = subprocess.run([*run, "--out", "x.parquet"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


def test_the_same_sources_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    build(tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == archive.read_bytes()
    assert os.access(archive, os.X_OK)
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    assert {"__main__.py", "pynvml.py", "driple/agents/cli.py", "driple/contracts/formats/trace.py"} <= set(names)
    assert not [name for name in names if "test" in name]


def test_what_it_runs_is_compiled_already_and_another_python_does_not_mind(archive: Path, tmp_path: Path) -> None:
    """Python keeps nothing of what it compiles from an archive, and would do it again at every start on every host."""
    with zipfile.ZipFile(archive) as opened:
        contents = {name: opened.read(name) for name in opened.namelist()}
    sources = [name for name in contents if name.startswith("driple/") and name != "driple/__init__.py"]
    compiled = [name for name in sources if name.endswith(".pyc")]
    assert sorted(compiled) == sorted(f"{name}c" for name in sources if name.endswith(".py"))
    flagged = [contents[name][:8] for name in compiled]
    assert set(flagged) == {importlib.util.MAGIC_NUMBER + b"\1\0\0\0"}  # never compared with times, which differ

    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(other, "w") as changed:
        for name, content in contents.items():
            changed.writestr(name, b"\0\0" + content[2:] if name in compiled else content)
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", other, "--version"], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("driple-sample ")
