"""driple-train that is interrupted or killed loses nothing, and goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import inspector_work
import pytest
import training_work as work

from driple.inspector.model.inspector_folder import load
from driple.inspector.training.epochs import Loop
from driple.inspector.training.interrupts import DeferredInterrupt
from driple.inspector.training.progress import ProgressBar

SETTING = inspector_work.SETTING


def interrupt_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C after an epoch."""
    told = ProgressBar.__call__

    def pressed(self: ProgressBar, member: int, epoch: Any, networks: int) -> None:
        told(self, member, epoch, networks)
        if epoch.number == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "__call__", pressed)


def test_ctrl_c_keeps_the_best_so_far_and_resume_goes_on(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("--set", "network.plain=false") == 0
    whole = work.weights_of(folder)
    capsys.readouterr()
    interrupt_at(monkeypatch, 2)
    assert train("--set", "network.plain=false") == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "--resume goes on" in printed.err
    assert load(folder).training["epochs"] == [2]
    assert not (folder / "report.md").exists()  # it was of another inspector
    monkeypatch.undo()
    assert train("--set", "network.plain=false", "--resume") == 0
    assert work.weights_of(folder) == whole
    assert load(folder).training["epochs"] == [4]


def test_ctrl_c_before_the_first_epoch_leaves_what_was_there(
    train: Callable[..., int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train() == 0
    before = sorted(path.name for path in folder.iterdir())

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("driple.inspector.training.epochs.Loop.step", pressed)
    assert train("--seed", "5") == 130
    monkeypatch.undo()
    assert load(folder).seed == 0
    assert [name for name in before if name not in ("events", "training")] == sorted(
        path.name for path in folder.iterdir() if path.name not in ("events", "training")
    )


def test_ctrl_c_while_a_comparison_warms_up_ends_it(
    train: Callable[..., int],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train() == 0
    (tmp_path / "kept").mkdir()
    source = folder.rename(tmp_path / "kept" / folder.name)
    step, steps = Loop.step, []

    def pressed(loop: Loop) -> None:
        steps.append(loop)
        if len(steps) == 2:  # the first epoch of the warm-up
            raise KeyboardInterrupt
        step(loop)

    monkeypatch.setattr(Loop, "step", pressed)
    capsys.readouterr()
    assert train("--transfer-from", str(source), "--compare-scratch", small=False) == 130
    assert "no inspector is written" in capsys.readouterr().err
    assert len(steps) == 2 and not (folder / "inspector.json").exists()


def press(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "moment",
    [
        "training.train_inspector.refit_plain",
        "training.train_inspector._calibrated",
        "training.train_network.write_state",
        "model.training_rows.save_rows",
    ],
)
def test_ctrl_c_after_the_last_epoch_loses_nothing(
    train: Callable[..., int],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    assert train() == 0
    whole = work.weights_of(folder)
    shutil.rmtree(folder)
    module, name = moment.rsplit(".", 1)
    real = getattr(import_module(f"driple.inspector.{module}"), name)

    def pressed(*arguments: Any, **options: Any) -> Any:
        press()
        return real(*arguments, **options)

    monkeypatch.setattr(f"driple.inspector.{moment}", pressed)
    capsys.readouterr()
    assert train() == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "interrupted: the best so far" in printed.err
    assert work.weights_of(folder) == whole
    assert load(folder).training["epochs"] == [4]


def test_ctrl_c_while_the_report_is_made_says_what_is_there(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driple.inspector.evaluation.error_table.evaluate", press)
    assert train() == 130
    assert "without its report; --evaluate makes it" in capsys.readouterr().err
    monkeypatch.undo()
    assert not (folder / "report.md").exists()
    assert train("--evaluate", small=False) == 0
    assert (folder / "report.md").exists()


def test_who_does_not_hear_ctrl_c_goes_on_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeferredInterrupt, "enabled", True)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferredInterrupt() as ctrl_c:
            press()
        assert not ctrl_c.came and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_killed_training_goes_on_and_the_inspector_before_stays(
    train: Callable[..., int], datasets: Path, folder: Path
) -> None:
    assert train("--seed", "1", "--epochs", "3") == 0
    before = work.weights_of(folder)
    command = [sys.executable, "-m", "driple.inspector.cli_train", "--setting", SETTING, "--datasets", str(datasets)]
    command += [
        "--output",
        str(folder.parent),
        *work.OPTIONS,
        "--epochs",
        "1000000",
        "--set",
        "training.patience=1000000",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("epoch 0")
        process.kill()
    assert process.returncode == -9
    assert work.weights_of(folder) == before and load(folder).seed == 1
    assert train("--resume", "--epochs", "3") == 0
    assert load(folder).seed == 0
