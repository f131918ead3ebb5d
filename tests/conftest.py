"""Shuts the tester's own machine out of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: how long one example takes says nothing about the code.
settings.register_profile("driple", deadline=None)
settings.load_profile("driple")


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
