"""The inspector's tests need torch: where there is none they are left out, and pytest's first lines say so.

What needs it is imported where it is used, for that reason.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MISSING = [name for name in ("torch", "safetensors", "scipy") if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"inspector: its tests are left out, there is no {' and no '.join(MISSING)}"] if MISSING else []


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small dataset."""
    import inspector_work

    folder = tmp_path_factory.mktemp("datasets")
    inspector_work.write(inspector_work.zoo(), folder)
    return folder


@pytest.fixture
def quick() -> Iterator[None]:
    """No trees and no pictures: they are most of the time of a small training."""
    from driple.inspector.evaluation import error_table
    from driple.inspector.training import train_setting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(error_table, "BASELINES", ("mean", "ridge"))
        patch.setattr(train_setting, "draw_pictures", lambda folder, found, say: None)
        yield


@pytest.fixture
def train(quick: None, datasets: Path, tmp_path: Path) -> Callable[..., int]:
    """driple-train on that dataset."""
    import inspector_work
    import training_work

    from driple.inspector import cli_train

    def run(*options: str, setting: str = inspector_work.SETTING, small: bool = True) -> int:
        where = ("--setting", setting, "--datasets", str(datasets), "--output", str(tmp_path / "inspectors"))
        return cli_train.main([*where, *(training_work.OPTIONS if small else ()), *options])

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where `train` puts its inspector."""
    import inspector_work

    return tmp_path / "inspectors" / inspector_work.SETTING
