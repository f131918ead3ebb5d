"""driple-train as a person uses it."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inspector_work
import pytest
import training_work as work
import yaml

from driple.inspector.cli_train import main, parser
from driple.inspector.evaluation import baselines, error_table
from driple.inspector.model.inspector_folder import load
from driple.inspector.training import train_setting
from driple.inspector.training.train_config import KINDS

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


PICTURES = train_setting.draw_pictures


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
    monkeypatch.setattr(train_setting, "draw_pictures", PICTURES)
    monkeypatch.setattr(error_table, "BASELINES", baselines.BASELINES)
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
    monkeypatch.setattr(train_setting, "draw_pictures", PICTURES)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert train() == 0
    assert "no pictures" in capsys.readouterr().err
    assert (folder / "report.md").exists() and not (folder / "errors.png").exists()


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
    assert main([*where, "--evaluate"]) == 0
    assert "transfer: validation NRMSE" in capsys.readouterr().out  # what it was compared with is not forgotten
    again = json.loads((tmp_path / "inspectors" / "cpu-p2w2-1g" / "report.json").read_text())
    assert again["transfer"] == value["transfer"]
    assert main([*where, "--transfer-from", SETTING, "--preset", "paper"]) == 2
    assert "of preset driple" in capsys.readouterr().err


def test_the_table_is_there_where_no_report_can_be_written(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    table = capsys.readouterr().out.splitlines()[:-2]
    (folder / "report.md").unlink()
    (folder / "report.md" / "inside").mkdir(parents=True)
    assert train("--evaluate", small=False) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[: len(table)] == table
    assert "report.md" in printed.err.splitlines()[-1]


def test_a_search_comes_first_and_its_best_is_trained(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    assert train("--tune", "2", "--epochs", "2", "--set", "network.layer=gcn") == 0
    said = capsys.readouterr().err
    assert "trial 2/2" in said and "best of 2 trials" in said
    assert load(folder).config.network.layer == "gcn"
    assert (folder / "tune.db").exists()


def test_the_document_names_real_options_and_its_python_runs(
    checkout: Path, datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (checkout / "docs/guides/training-inspectors.md").read_text()
    known = {name for action in parser()._actions for name in action.option_strings}
    assert {name for name in re.findall(r"--[a-z][a-z-]+", text) if name not in known} == {"--logdir"}
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    code = code.replace("v100-p1w2-pcie", SETTING).replace('"datasets"', repr(str(datasets)))
    code = code.replace('changed(preset("driple"), ensemble=3)', "work.small(ensemble=3)")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"work": work}
    exec(code, found)
    assert found["values"].shape == found["spread"].shape == (9, 12)


def test_there_are_few_options_and_the_rest_are_keys(capsys: pytest.CaptureFixture[str]) -> None:
    own = [action for action in parser()._actions if action.dest not in ("help", "version")]
    assert len(own) <= 20
    assert main(["--setting", SETTING, "--show-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    keys = {f"{part}.{name}" for part, inner in shown.items() if isinstance(inner, dict) for name in inner}
    assert keys | {name for name, value in shown.items() if not isinstance(value, dict)} == set(KINDS)


def test_a_shown_configuration_can_be_given_back(
    train: Callable[..., int], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--show-config", "--set", "network.gru=off", "--set", "training.learning_rate=1e-2") == 0
    text = capsys.readouterr().out
    (tmp_path / "config.yaml").write_text(text)
    assert main(["--setting", SETTING, "--config", str(tmp_path / "config.yaml"), "--show-config"]) == 0
    assert capsys.readouterr().out == text
    assert not folder.exists()
    assert train("--config", str(tmp_path / "config.yaml"), "--set", "network.readout=mean", small=False) == 0
    found = load(folder).config
    assert (found.network.gru, found.network.readout, found.network.hidden) == ("off", "mean", 6)
    assert (found.training.learning_rate, found.training.epochs) == (0.01, 4)


# Bad input: one line, exit code 2, nothing written.


def test_a_depth_of_the_graph_brings_shared_layers_with_it(train: Callable[..., int], folder: Path) -> None:
    assert train("--set", "network.depth=sqrtN", "--set", "network.layer=gcn") == 0
    network = load(folder).config.network
    assert network.shared and not network.jump


def test_published_rows_train_like_any_other(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspector_work.write(inspector_work.published(40), tmp_path / "datasets")
    options = ["--setting", SETTING, "--datasets", str(tmp_path / "datasets"), "--output", str(tmp_path / "inspectors")]
    assert main([*options, *work.OPTIONS]) == 2
    assert "--split random" in capsys.readouterr().err
    assert main([*options, *work.OPTIONS, "--split", "random", "--preset", "paper", "--set", "network.depth=N/2"]) == 0
    assert "published rows, random split" in capsys.readouterr().out
