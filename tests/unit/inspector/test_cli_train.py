"""driple-train as a person uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import inspector_work
import pytest
import training_work as work

from driple.inspector import baselines, cli_train, evaluation, options
from driple.inspector.checkpoint import load
from driple.inspector.cli_train import main
from driple.inspector.interrupts import HeldBack
from driple.inspector.progress import Progress

SETTING = inspector_work.SETTING
FILES = {
    "errors.csv",
    "errors.png",
    "inspector.json",
    "predictions.csv",
    "predictions.png",
    "report.json",
    "report.md",
} | {"training-rows.json"}


PICTURES = cli_train._pictures


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """No trees and no pictures: they are most of the time of a small training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "BASELINES", ("mean", "ridge"))
        patch.setattr(cli_train, "_pictures", lambda folder, found: None)
        yield


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    inspector_work.write(inspector_work.zoo(), folder)
    return folder


@pytest.fixture
def train(datasets: Path, tmp_path: Path) -> Callable[..., int]:
    def run(*options: str, setting: str = SETTING, small: bool = True) -> int:
        where = ("--setting", setting, "--datasets", str(datasets), "--output", str(tmp_path / "inspectors"))
        return main([*where, *(work.OPTIONS if small else ()), *options])

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "inspectors" / SETTING


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom driple.inspector.cli_train import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'dgl', 'pyarrow', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "driple-train --setting v100-p1w2-pcie" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_training_prints_a_table_and_leaves_an_inspector(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_train, "_pictures", PICTURES)
    monkeypatch.setattr(evaluation, "BASELINES", baselines.BASELINES)
    assert train() == 0
    printed = capsys.readouterr()
    for word in ("gpu_burst_s", "inspector", "mean", "ridge", "trees", "mean of all", str(folder)):
        assert word in printed.out
    assert "epoch 4, validation NRMSE" in printed.err
    names = {path.name for path in folder.iterdir()}
    assert names > FILES | {"events", "training"}
    assert list((folder / "events" / "network-0").glob("*tfevents*"))
    value = json.loads((folder / "report.json").read_text())
    assert value["training"]["epochs"] == [4] and value["training"]["finished"]

    first = (folder / "errors.csv").read_text()
    (folder / "errors.csv").unlink()
    assert train("--evaluate", small=False) == 0
    assert capsys.readouterr().out == printed.out
    assert (folder / "errors.csv").read_text() == first

    monkeypatch.undo()
    assert train("--evaluate", "--json", "--split", "random", small=False) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["split"] == "random" and other["notes"]
    assert (folder / "errors.csv").read_text() == first  # stays that of its own split


def test_the_same_seed_gives_the_same_weights(train: Callable[..., int], folder: Path) -> None:
    assert train("--seed", "3") == 0
    first = work.weights_of(folder)
    assert train("--seed", "3") == 0
    assert work.weights_of(folder) == first
    assert train("--seed", "4") == 0
    assert work.weights_of(folder) != first


def test_curves_can_be_read(train: Callable[..., int], folder: Path) -> None:
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    assert train() == 0
    (path,) = (folder / "events" / "network-0").iterdir()
    content, events = path.read_bytes(), []
    while content:  # length, its checksum, the event, its checksum
        (size,) = struct.unpack("<Q", content[:8])
        events.append(event_pb2.Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    assert events[0].file_version == "brain.Event:2"
    points = [(event.step, value.tag) for event in events for value in event.summary.value]
    assert points == [(step, tag) for step in range(5) for tag in ("train_loss", "val_loss", "val_nrmse")]


def test_without_tensorboard_only_the_curves_are_lost(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    assert train() == 0
    assert capsys.readouterr().err.count("tensorboard is not installed") == 1
    assert (folder / "report.md").exists() and not list(folder.glob("events/*/*"))


def test_without_matplotlib_only_the_pictures_are_lost(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_train, "_pictures", PICTURES)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert train() == 0
    assert "no pictures" in capsys.readouterr().err
    assert (folder / "report.md").exists() and not (folder / "errors.png").exists()


def interrupt_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C after an epoch."""
    told = Progress.__call__

    def pressed(self: Progress, member: int, epoch: Any) -> None:
        told(self, member, epoch)
        if epoch.number == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", pressed)


def test_ctrl_c_keeps_the_best_so_far_and_resume_goes_on(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("--no-plain") == 0
    whole = work.weights_of(folder)
    capsys.readouterr()
    interrupt_at(monkeypatch, 2)
    assert train("--no-plain") == 130
    printed = capsys.readouterr()
    assert printed.out == "" and "--resume goes on" in printed.err
    assert load(folder).training["epochs"] == [2]
    assert not (folder / "report.md").exists()  # it was of another inspector
    monkeypatch.undo()
    assert train("--no-plain", "--resume") == 0
    assert work.weights_of(folder) == whole
    assert load(folder).training["epochs"] == [4]


def test_ctrl_c_before_the_first_epoch_leaves_what_was_there(
    train: Callable[..., int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train() == 0
    before = sorted(path.name for path in folder.iterdir())

    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("driple.inspector.loop.Loop.step", pressed)
    assert train("--seed", "5") == 130
    monkeypatch.undo()
    assert load(folder).seed == 0
    assert [name for name in before if name not in ("events", "training")] == sorted(
        path.name for path in folder.iterdir() if path.name not in ("events", "training")
    )


def press(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    "moment", ["learn.refit_plain", "learn._calibrated", "train.write_state", "trainingrows.save_rows"]
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
    module, name = moment.split(".")
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
    monkeypatch.setattr("driple.inspector.evaluation.evaluate", press)
    assert train() == 130
    assert "without its report; --evaluate makes it" in capsys.readouterr().err
    monkeypatch.undo()
    assert not (folder / "report.md").exists()
    assert train("--evaluate", small=False) == 0
    assert (folder / "report.md").exists()


def test_who_does_not_hear_ctrl_c_goes_on_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with HeldBack() as ctrl_c:
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
    command += ["--output", str(folder.parent), *work.OPTIONS, "--epochs", "1000000", "--patience", "1000000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("epoch 0")
        process.kill()
    assert process.returncode == -9
    assert work.weights_of(folder) == before and load(folder).seed == 1
    assert train("--resume", "--epochs", "3") == 0
    assert load(folder).seed == 0


def test_an_ensemble_reports_its_calibration(train: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--ensemble", "2", "--json") == 0
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert 0 <= value["calibration"]["within_1"] <= value["calibration"]["within_2"] <= 1
    assert "network 2/2" in printed.err


def test_a_transfer_is_compared_with_training_from_scratch(
    datasets: Path, tmp_path: Path, train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    capsys.readouterr()
    other = inspector_work.zoo()
    inspector_work.write(other, tmp_path / "more")
    inspector_work.rewrite(
        tmp_path / "more" / f"{SETTING}.parquet",
        driple_setting="cpu-p2w2-1g",
        setting=["cpu-p2w2-1g"] * len(other.rows),
    )
    (tmp_path / "more" / f"{SETTING}.parquet").rename(tmp_path / "more" / "cpu-p2w2-1g.parquet")
    where = ["--setting", "cpu-p2w2-1g", "--datasets", str(tmp_path / "more"), "--output", str(tmp_path / "inspectors")]
    assert main([*where, "--transfer-from", SETTING, "--compare-scratch"]) == 0
    printed = capsys.readouterr().out
    assert "transfer: validation NRMSE" in printed and "scratch" in printed.splitlines()[3]
    value = json.loads((tmp_path / "inspectors" / "cpu-p2w2-1g" / "report.json").read_text())
    assert value["transfer"]["from"] == SETTING and value["transfer"]["scratch_seconds"] > 0
    assert {row["predictor"] for row in value["errors"]} == {"inspector", "scratch", "mean", "ridge"}
    assert main([*where, "--transfer-from", SETTING, "--preset", "paper"]) == 2
    assert "of preset driple" in capsys.readouterr().err


def test_a_search_comes_first_and_its_best_is_trained(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    assert train("--tune", "2", "--epochs", "2", "--layer", "gcn") == 0
    said = capsys.readouterr().err
    assert "trial 2/2" in said and "best of 2 trials" in said
    assert load(folder).config.network.layer == "gcn"
    assert (folder / "tune.db").exists()


def test_the_document_names_real_options_and_its_python_runs(
    checkout: Path, datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (checkout / "docs" / "INSPECTOR.md").read_text()
    known = {name for action in options.parser()._actions for name in action.option_strings}
    assert {name for name in re.findall(r"--[a-z][a-z-]+", text) if name not in known} == {"--logdir"}
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    code = code.replace("v100-p1w2-pcie", SETTING).replace('"datasets"', repr(str(datasets)))
    code = code.replace('changed(preset("driple"), ensemble=3)', "work.small(ensemble=3)")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"work": work}
    exec(code, found)
    assert found["values"].shape == found["spread"].shape == (9, 12)


# Bad input: one line, exit code 2, nothing written.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--layer", "gnn"), "invalid choice: 'gnn'"),
        (("--depth", "many"), "depth"),
        (("--grouping", "some"), "unknown grouping"),
        (("--hidden", "0"), "hidden: expected 1 to 4096"),
        (("--hidden", "99999999"), "hidden: expected 1 to 4096"),
        (("--depth", "10000"), "depth: expected 1 to 1000"),
        (("--learning-rate", "nan"), "learning_rate"),
        (("--learning-rate", "inf"), "learning_rate"),
        (("--weight-decay", "-1"), "weight_decay: expected 0 or more"),
        (("--weight-decay", "inf"), "weight_decay: expected 0 or more"),
        (("--clip", "nan"), "clip: expected 0 or more"),
        (("--threads", "100000"), "--threads: expected at most 256"),
        (("--transfer-ratio", "0"), "goes with --transfer-from"),
        (("--ensemble", "0"), "ensemble: expected at least 1"),
        (("--learning-rate", "0"), "learning_rate"),
        (("--dropout", "1"), "dropout"),
        (("--seed", "-1"), "expected 0 or more"),
        (("--tune", "0"), "expected at least 1"),
        (("--transfer-from", "nowhere"), "no such file or folder"),
        (("--transfer-ratio", "0.5"), "goes with --transfer-from"),
        (("--compare-scratch",), "goes with --transfer-from"),
        (("--transfer-from", "x", "--transfer-ratio", "1"), "between 0 and 1"),
        (("--transfer-from", "x", "--tune", "3"), "give one of them"),
        (("--evaluate", "--resume"), "leave --resume out"),
        (("--evaluate", "--epochs", "3"), "leave --"),
    ],
)
def test_options_that_cannot_be(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], message: str
) -> None:
    try:
        code = train(*given, small="--evaluate" not in given)
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr().err
    assert code == 2 and message in said and len(said.splitlines()) == 1
    assert not folder.exists()


def test_cuda_where_there_is_none(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # also on a machine that has it
    assert train("--device", "cuda") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_setting_without_a_dataset(train: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert train(setting="v100-p1w2-pcie") == 2
    said = capsys.readouterr().err
    assert SETTING in said and "driple-build-dataset" in said and len(said.splitlines()) == 1


def test_an_inspector_that_is_not_there_cannot_be_evaluated(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--evaluate", small=False) == 2
    assert "no inspector" in capsys.readouterr().err


def spoil_too_few(dataset: Any) -> None:
    dataset.rows = [row for row in dataset.rows if row["batch_size"] == 8 and row["model"].endswith("1")]


def spoil_one_family(dataset: Any) -> None:
    dataset.rows = [row for row in dataset.rows if row["family"] == "vgg"]


def spoil_targets(dataset: Any) -> None:
    for row in dataset.rows:
        for name in [name for name in row if name.startswith(("gpu_", "net_"))]:
            del row[name]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(spoil_too_few, "at least 8"), (spoil_one_family, "--split random"), (spoil_targets, "is null")],
)
def test_datasets_that_cannot_be_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Any], None], message: str
) -> None:
    dataset = inspector_work.zoo()
    spoil(dataset)
    inspector_work.write(dataset, tmp_path / "datasets")
    options = ["--setting", SETTING, "--datasets", str(tmp_path / "datasets"), "--output", str(tmp_path / "inspectors")]
    assert main(options) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1
    assert not (tmp_path / "inspectors").exists()


def test_a_dataset_of_another_schema_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = inspector_work.write(inspector_work.zoo(), tmp_path)
    inspector_work.rewrite(path, driple_schema_version=b"2")
    assert main(["--setting", SETTING, "--datasets", str(tmp_path), "--output", str(tmp_path / "inspectors")]) == 2
    assert "schema version" in capsys.readouterr().err


def test_a_second_training_in_the_same_folder_is_refused(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from driple.contracts.onlyone import only_one

    with only_one(folder, "driple-train"):
        assert train() == 2
    assert "another driple-train" in capsys.readouterr().err


def test_a_depth_of_the_graph_brings_shared_layers_with_it(train: Callable[..., int], folder: Path) -> None:
    assert train("--depth", "sqrtN", "--layer", "gcn") == 0
    network = load(folder).config.network
    assert network.shared and not network.jump


def test_published_rows_train_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspector_work.write(inspector_work.published(40), tmp_path / "datasets")
    options = ["--setting", SETTING, "--datasets", str(tmp_path / "datasets"), "--output", str(tmp_path / "inspectors")]
    assert main([*options, *work.OPTIONS]) == 2
    assert "--split random" in capsys.readouterr().err
    assert main([*options, *work.OPTIONS, "--split", "random", "--preset", "paper", "--depth", "N/2"]) == 0
    assert "published rows, random split" in capsys.readouterr().out
