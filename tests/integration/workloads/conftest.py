from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_jobs import Folder, WarmHost

from driple.contracts.run_spec import JobSpec


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHost]:
    """One warm host for all tests: each task is a process of its own, forked from one that has never trained."""
    host = WarmHost(tmp_path_factory.mktemp("warm") / "stderr.log")
    yield host
    assert host.close() == 0


@pytest.fixture(scope="session")
def warm_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHost]:
    """As `warm`, with PyTorch."""
    host = WarmHost(tmp_path_factory.mktemp("warm-torch") / "stderr.log", "torch")
    yield host
    assert host.close() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[JobSpec], Folder]:
    numbers = iter(range(100))
    return lambda job: Folder(tmp_path / f"job{next(numbers)}", job)
