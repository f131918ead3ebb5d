"""train as a function: a typed result, no output, no signal handlers."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import inspector_work
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.inspector.predict.predictor import Inspector
from driple.inspector.training.train_setting import evaluate_inspector, train

SETTING = inspector_work.SETTING
SMALL: dict[str, Any] = {
    "grouping": "uniform:4",
    "network": {"hidden": 6, "depth": 2},
    "training": {"patience": 100, "batch_size": 8},
}


def test_a_training_returns_its_inspector_and_errors_and_is_silent(
    quick: None, datasets: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a library installs no signal handlers")

    monkeypatch.setattr(signal, "signal", refuse)
    before = list(logging.getLogger().handlers), logging.getLogger().level
    seen: list[tuple[int, int, int]] = []
    result = train(
        SETTING,
        datasets=datasets,
        output=tmp_path / "inspectors",
        epochs=3,
        ensemble=2,
        config=SMALL,
        settings=("training.batch_size=4",),
        progress=lambda member, epoch, networks: seen.append((member, epoch.number, networks)),
    )
    assert capfd.readouterr() == ("", "")
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before
    assert seen == [(member, number, 2) for member in range(2) for number in range(4)]
    assert result.folder == tmp_path / "inspectors" / SETTING and not result.interrupted and result.fault is None
    assert result.config is not None and result.config.model.training.batch_size == 4
    assert result.evaluation is not None and result.evaluation.scores["test"]["inspector"].overall.nrmse is not None
    assert result.report["setting"] == SETTING and "mean of all" in str(result)
    assert Inspector.load(result.folder).columns == result.inspector.columns
    again = evaluate_inspector(SETTING, datasets=datasets, output=tmp_path / "inspectors")
    assert again.report == result.report


def test_wrong_names_are_errors_before_anything_is_written(datasets: Path, tmp_path: Path) -> None:
    where: dict[str, Any] = {"datasets": datasets, "output": tmp_path / "inspectors"}
    with pytest.raises(UnknownName, match="did you mean 'network.layer'"):
        train(SETTING, **where, config={"network": {"layr": "gin"}})
    with pytest.raises(BadInput, match="network.hidden: expected a whole number"):
        train(SETTING, **where, config={"network.hidden": 1.5})
    assert not (tmp_path / "inspectors").exists()
