"""Shuts the tester's own machine out of the tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Machines are noisy: how long one example takes says nothing about the code.
settings.register_profile("driple", deadline=None)
settings.load_profile("driple")

# As tasks have it: TensorFlow then loads tf_keras alone.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# A shell lets what it runs in the background not hear Ctrl-C, and all that this starts: tests of Ctrl-C would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ONE_AT_A_TIME = ("agents", "browser", "controller", "hosts", "lab")
"""Integration tests that look at all processes, namespaces or links of a machine, or make some: two would see each
other. A browser's namespaces are among them, and the kernel gives the number of one that has gone to the next."""


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """What `pytest -n` gives to one process: the tests of a file, which share its fixtures, or all of ONE_AT_A_TIME."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "machine" if file.startswith(tuple(f"tests/integration/{name}/" for name in ONE_AT_A_TIME)) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """In the order of collection: integration tests are the longest, and first of them those that are one group."""
    config.option.loadscopereorder = False
    return Groups(config, log)


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
