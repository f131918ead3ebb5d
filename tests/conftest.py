"""Shuts the tester's own machine out of the tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: how long one example takes says nothing about the code.
settings.register_profile("driple", deadline=None)
settings.load_profile("driple")

# A shell lets what it runs in the background not hear Ctrl-C, and all that this starts: tests of Ctrl-C would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ONE_AT_A_TIME = ("agents", "browser", "controller", "hosts", "lab")
"""Integration tests that look at all processes, namespaces or links of a machine, or make some: two would see each
other. A browser's namespaces are among them, and the kernel gives the number of one that has gone to the next."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Says which tests `pytest -n` must give to one process: those of a file, which share what its fixtures made."""
    for item in items:
        folder = item.path.parent
        shared = folder.parent.name == "integration" and folder.name in ONE_AT_A_TIME
        item.add_marker(pytest.mark.xdist_group("machine" if shared else str(item.path)))


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of its own for every test: no ~/.ssh/config, no user settings."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The top of the project."""
    return Path(__file__).resolve().parents[1]
