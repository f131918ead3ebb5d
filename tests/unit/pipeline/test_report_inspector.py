"""The page of inspectors, from files alone: whole folders, damaged ones, and curves of either kind of file."""

from __future__ import annotations

import csv
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import inspector_work
import pytest
import training_work

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import FILE, SCHEMA_VERSION
from driple.contracts.metrics import COLUMNS, RESOURCES
from driple.inspector.cli_train import main as train
from driple.pipeline.cli_report import main
from driple.pipeline.reports.inspector_page import inspector_report
from driple.pipeline.reports.learning_curves import read_curves
from driple.pipeline.reports.page_layout import Report, render

INSPECTORS = Path(__file__).resolve().parents[3] / "inspectors"
KEPT = sorted(path.parent for path in INSPECTORS.glob(f"*/{FILE}"))
HOSTILE = "<a href=javascript:alert(1)>"
PREDICTORS = {"inspector": 0.1, "mean": 0.3, "trees": 0.2}


def quiet(what: str, done: int, total: int) -> None:
    """Nobody watches."""


def make(folder: Path, word: str = "driple", **changes: Any) -> Path:
    """A folder as training leaves it, with `word` wherever a text can be."""
    folder.mkdir(parents=True)
    weights = b"weights"
    (folder / "model-1.safetensors").write_bytes(weights)
    about = {
        "schema": "inspector",
        "schema_version": SCHEMA_VERSION,
        "setting": "cpu-p1w2-1g",
        "role": "worker",
        "split": "architecture",
        "seed": 7,
        "provenance": "measured",
        "config": {"preset": word, "network": {"layer": word, "hidden": 32}},
        "features": {"kind": "paper", "names": ["ops", word]},
        "weights": "model-1.safetensors",
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "networks": 1,
        "dataset_sha256": "d" * 64,
        "transferred_from": None,
        "training": {"epochs": [3], "best_epochs": [1], "seconds": 9.5, "finished": True},
        "versions": {"torch": word},
    }
    errors = [
        {"side": side, "predictor": name, "target": target, "nrmse": value, "mape": 2 * value, "r2": 1 - value}
        for side in ("val", "test")
        for name, value in PREDICTORS.items()
        for target in (*COLUMNS, *(resource.key for resource in RESOURCES), "all")
    ]
    report = {"workloads": {"train": 9, "val": 3, "test": 2}, "notes": [], "errors": errors}
    (folder / "inspector.json").write_text(json.dumps({**about, **changes}))
    (folder / "report.json").write_text(json.dumps(report))
    with (folder / "predictions.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["model", "batch_size", "optimiser", "update", "run_ids", "target", "true", "inspector"])
        for column in COLUMNS[:3]:
            writer.writerow([word, 8, "sgd", "sync", "r1", column, 0.1, 0.15])
            writer.writerow([word, 16, "sgd", "sync", "r2", column, 0.2, 0.2])
    return folder


def section(report: Report, title: str) -> str:
    (found,) = [part.body for part in report.sections if part.title == title]
    return found


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def events(values: dict[int, float]) -> bytes:
    """A file of TensorBoard with one curve."""
    found = b""
    for epoch, value in values.items():
        point = block(1, b"val_nrmse") + varint(2 << 3 | 5) + struct.pack("<f", value)
        event = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + varint(2 << 3) + varint(epoch)
        event += block(5, block(1, point))
        found += struct.pack("<Q", len(event)) + b"crc1" + event + b"crc2"
    return found


def write_state(folder: Path, history: list[dict[str, float]]) -> None:
    header = json.dumps({"__metadata__": {"driple": json.dumps({"history": history})}}).encode()
    (folder / "training").mkdir()
    (folder / "training/member-0.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def test_errors_stand_beside_those_of_the_baselines(tmp_path: Path) -> None:
    folder = make(tmp_path / "i")
    report = inspector_report([folder], folder, quiet)
    body = section(report, "Errors")
    assert "<strong>10.0 %</strong>" in body
    assert "<strong>30.0 %</strong>" not in body
    assert "mean of all: inspector 10.0 %, mean 30.0 %, trees 20.0 %" in body
    assert "The validation side" in body
    assert report.facts["inspectors"]["i"]["nrmse"]["trees"]["all"] == 0.2
    assert not report.notes


def test_targets_without_values_have_no_row(tmp_path: Path) -> None:
    folder = make(tmp_path / "i")
    report = json.loads((folder / "report.json").read_text())
    report["errors"] = [one for one in report["errors"] if not one["target"].startswith("gpu_mem")]
    (folder / "report.json").write_text(json.dumps(report))
    body = section(inspector_report([folder], folder, quiet), "Errors")
    assert "net_rx_burst_s" in body and "mean of net_rx" in body
    assert "gpu_mem" not in body


def test_predictions_configuration_and_provenance(tmp_path: Path) -> None:
    folder = make(tmp_path / "i")
    report = inspector_report([folder], folder, quiet)
    body = section(report, "Predictions")
    assert body.count("<svg") == 3
    assert "CPU utilisation, mean burst duration: 2 points, 1 of them within 10 %" in body
    assert ">50.0 %</td>" in body
    assert ">network.hidden</th><td>32</td>" in section(report, "Configuration")
    assert "d" * 64 in section(report, "Provenance")
    assert "9 train, 3 val, 2 test" in section(report, "Overview")


def test_what_readers_must_not_overlook(tmp_path: Path) -> None:
    training = {"best_epochs": [1], "finished": False}
    folder = make(tmp_path / "i", provenance="simulated", training=training, weights_sha256="0")
    report = json.loads((folder / "report.json").read_text())
    for row in report["errors"]:
        row["nrmse"] = 0.05 if row["predictor"] == "trees" else row["nrmse"]
    (folder / "report.json").write_text(json.dumps({**report, "notes": ["the dataset has changed"]}))
    notes = "\n".join(inspector_report([folder], folder, quiet).notes)
    for words in ("SHA-256 differs", "simulated rows", "dataset has changed", "stopped before", "trees did better"):
        assert words in notes


def test_everything_from_the_files_is_escaped(tmp_path: Path) -> None:
    folder = make(tmp_path / "i", HOSTILE, setting=HOSTILE, weights=HOSTILE, provenance=HOSTILE)
    (folder / "report.json").write_text(
        json.dumps(
            {"notes": [HOSTILE], "workloads": {HOSTILE: HOSTILE}, "errors": [{"side": "test", "predictor": HOSTILE}]}
        )
    )
    page = render(inspector_report([folder], folder, quiet))
    assert HOSTILE not in page
    assert page.count("&lt;a href=javascript:alert(1)&gt;") > 8


@pytest.mark.parametrize("content", ["", "[]", "{", '{"errors": 3, "workloads": [], "notes": 5}'])
def test_damaged_reports_are_said_and_stop_nothing(tmp_path: Path, content: str) -> None:
    folder = make(tmp_path / "i")
    (folder / "report.json").write_text(content)
    (folder / "predictions.csv").write_bytes(b"\xff\xfe\x00")
    report = inspector_report([folder], folder, quiet)
    assert "No errors were written" in section(report, "Errors")
    assert "predictions.csv: not readable" in " ".join(report.notes)


def test_an_inspector_without_its_reports_is_still_a_page(tmp_path: Path) -> None:
    folder = make(tmp_path / "i")
    for name in ("report.json", "predictions.csv", "model-1.safetensors"):
        (folder / name).unlink()
    report = inspector_report([folder], folder, quiet)
    assert len(report.notes) == 3
    assert "No such file" in report.notes[0]
    assert "driple-train --evaluate" in report.notes[0]


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": "inspector", "schema_version": 99}'])
def test_what_is_no_inspector_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "inspector.json").write_text(content)
    with pytest.raises(BadInput, match=r"inspector\.json: "):
        inspector_report([tmp_path], tmp_path, quiet)


def test_a_folder_of_inspectors_is_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b", role="ps")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/inspector.json").write_text("{}")
    assert main([str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["inspectors"]) == ["a", "b"]
    assert facts["set_aside"] == [{"folder": "c", "reason": "inspector.json: not an inspector of driple"}]
    assert "b: Learning curves</h2>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_every_kept_inspector_has_a_page(folder: Path, tmp_path: Path) -> None:
    assert main([str(folder), "--output", str(tmp_path / "page.html")]) == 0
    report = inspector_report([folder], folder, quiet)
    assert "mean of all: inspector" in section(report, "Errors")


def test_the_kept_inspectors_are_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(INSPECTORS), "--json", "--output", str(tmp_path / "page.html")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not facts["set_aside"]
    assert list(facts["inspectors"]) == [folder.name for folder in KEPT]


def test_an_inspector_that_was_just_trained_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspector_work.write(inspector_work.zoo(), tmp_path / "datasets")
    where = ("--datasets", str(tmp_path / "datasets"), "--output", str(tmp_path / "inspectors"))
    assert train(["--setting", inspector_work.SETTING, *where, *training_work.OPTIONS]) == 0
    folder = tmp_path / "inspectors" / inspector_work.SETTING
    capsys.readouterr()
    assert main([str(folder), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["inspectors"].values()
    assert found["setting"] == inspector_work.SETTING
    assert not found["faults"]
    assert found["nrmse"]["inspector"]["all"] > 0
    assert found["epochs"] == [5]


def test_a_folder_in_which_no_inspector_can_be_read_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        make(tmp_path / name, schema_version=SCHEMA_VERSION - 1)
    assert main([str(tmp_path)]) == 2
    assert "no inspector can be read" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_curves_of_tensorboard_files(tmp_path: Path) -> None:
    folder = tmp_path / "events/network-0"
    folder.mkdir(parents=True)
    whole = events({0: 0.5, 1: 0.4, 2: 0.9})
    (folder / "events.out.tfevents.0000.driple").write_bytes(whole[:-9])  # the last record was cut by a kill
    (folder / "events.out.tfevents.0001.driple").write_bytes(events({2: 0.25, 300: 0.125}))
    (curve,) = read_curves(tmp_path)
    values = curve.values["val_nrmse"]
    assert values[:3] == pytest.approx([0.5, 0.4, 0.25])
    assert (len(values), values[300]) == (301, 0.125)


def test_curves_of_a_state_come_first(tmp_path: Path) -> None:
    folder = make(tmp_path / "i")
    history = [{"train_loss": 3.0 - i, "val_loss": 4.0 - i, "val_nrmse": 0.5 - i / 10} for i in range(3)]
    write_state(folder, history)
    (folder / "events/network-0").mkdir(parents=True)
    (folder / "events/network-0/events.out.tfevents.0000").write_bytes(events({0: 9.0}))
    report = inspector_report([folder], folder, quiet)
    assert report.facts["inspectors"]["i"]["epochs"] == [3]
    assert "over 3 epochs, least 30.0 %" in section(report, "Learning curves")


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 40, struct.pack("<Q", 4) + b"{}{}", struct.pack("<Q", 9) + b"x" * 25]
)
def test_damaged_curves_are_none(tmp_path: Path, content: bytes) -> None:
    for name in ("events/network-0/x.tfevents.1", "training/member-0.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(content)
    assert read_curves(tmp_path) == []
