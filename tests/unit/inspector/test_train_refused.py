"""What driple-train cannot do is said in one line, with exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import inspector_work
import pytest

from driple.inspector.cli_train import main

SETTING = inspector_work.SETTING


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--set", "network.layer=gnn"), "unknown layer 'gnn'"),
        (("--set", "network.depth=many"), "depth"),
        (("--set", "grouping=some"), "unknown grouping"),
        (("--set", "network.hidden=0"), "hidden: expected 1 to 4096"),
        (("--set", "network.hidden=99999999"), "hidden: expected 1 to 4096"),
        (("--set", "network.depth=10000"), "a number from 1 to 1000"),
        (("--set", "network.readout_steps=0"), "readout_steps: unknown '0'"),
        (("--set", "training.learning_rate=nan"), "learning_rate"),
        (("--set", "training.learning_rate=inf"), "learning_rate"),
        (("--set", "training.weight_decay=-1"), "weight_decay: expected 0 or more"),
        (("--set", "training.weight_decay=inf"), "weight_decay: expected 0 or more"),
        (("--set", "training.clip=nan"), "clip: expected 0 or more"),
        (("--set", "machine.threads=100000"), "machine.threads: expected 1 to 256"),
        (("--set", "transfer.ratio=0"), "between 0 and 1"),
        (("--ensemble", "0"), "ensemble: expected at least 1"),
        (("--set", "training.learning_rate=0"), "learning_rate"),
        (("--set", "network.dropout=1"), "dropout"),
        (("--seed", "-1"), "expected a whole number, 0 or more"),
        (("--seed", "1.5"), "expected a whole number, 0 or more"),
        (("--tune", "0"), "expected a whole number, at least 1"),
        (("--tune", "x"), "expected a whole number, at least 1"),
        (("--transfer-from", "nowhere"), "no such file or folder"),
        (("--tune-part", "half"), "goes with --transfer-from"),
        (("--compare-scratch",), "goes with --transfer-from"),
        (
            ("--transfer-from", SETTING, "--tune-part", "mlp", "--set", "transfer.ratio=0.9"),
            "goes with --tune-part half",
        ),
        (("--transfer-from", "x", "--set", "transfer.ratio=1"), "between 0 and 1"),
        (("--transfer-from", "x", "--tune", "3"), "give one of them"),
        (("--evaluate", "--resume"), "leave --resume out"),
        (("--set", "network.layr=gin"), "did you mean 'network.layer'?"),
        (("--set", "network.layr=gin"), "training.learning_rate"),
        (("--set", "network.layer"), "expected key=value"),
        (("--set", "network.hidden=many"), "network.hidden: expected a whole number, got 'many'"),
        (("--set", "network.jump=maybe"), "network.jump: expected true or false"),
        (("--set", "training.epochs="), "training.epochs: expected a whole number"),
        (("--config", "nowhere.yaml"), "--config nowhere.yaml: No such file"),
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
    assert train("--set", "machine.device=cuda") == 2
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
    from driple.contracts.folder_lock import only_one

    with only_one(folder, "driple-train"):
        assert train() == 2
    assert "another driple-train" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ensemble: 1\nensemble: 2\n", "key 'ensemble' appears twice, on lines 1 and 2"),
        ("{ensemble: 1, ensemble: 1}", "key 'ensemble' appears twice, on lines 1 and 1"),
        ("network:\n  layer: gin\n  layer: gcn\n", "key 'network.layer' appears twice, on lines 2 and 3"),
        ("network: {layer: gin}\nnetwork: {hidden: 8}\n", "key 'network' appears twice, on lines 1 and 2"),
        ("network.layer: gin\nnetwork:\n  layer: gcn\n", "key 'network.layer' appears twice, on lines 1 and 3"),
    ],
)
def test_a_key_that_a_config_holds_twice_is_refused(
    train: Callable[..., int], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(text)
    assert train("--config", str(config)) == 2
    assert capsys.readouterr().err == f"--config {config}: {message}\n"
    assert not folder.exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "network.hidden=9"), "hidden: the network to start from has"),
        (("--split", "random"), "learned by the architecture split"),
    ],
)
def test_a_transfer_that_is_refused_touches_nothing(
    train: Callable[..., int],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    assert train() == 0
    (tmp_path / "kept").mkdir()
    source = folder.rename(tmp_path / "kept" / SETTING)
    assert train() == 0
    before = files_of(folder)
    assert any(name.startswith("training/") for name in before) and any(name.startswith("events/") for name in before)
    assert train("--transfer-from", str(source), *options, small=False) == 2
    assert message in capsys.readouterr().err
    assert files_of(folder) == before


def test_a_transfer_does_not_replace_what_it_starts_from(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train() == 0
    before = files_of(folder)
    for text in (SETTING, str(folder)):
        assert train("--transfer-from", text, small=False) == 2
        assert "in place of the one that it starts from; give another --output" in capsys.readouterr().err
    assert files_of(folder) == before


@pytest.mark.parametrize("name", ["training", "events", "report.md", "inspector.json"])
def test_something_else_in_a_files_place_is_said_in_one_line(
    train: Callable[..., int], folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder.mkdir(parents=True)
    if "." in name:
        (folder / name / "inside").mkdir(parents=True)
    else:
        (folder / name).write_text("not a folder")
    assert train() == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert name in last and ("directory" in last or "exists" in last)
    assert not list(folder.glob(".*.partial"))
