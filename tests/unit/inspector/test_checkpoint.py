"""An inspector's folder: whole or not there, and read strictly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_work as work

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import folder_name
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_dir import replacing
from driple.inspector.data.examples import Examples
from driple.inspector.model import inspector_folder
from driple.inspector.model.inspector_folder import load, save
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.model_config import EVERY, ONCE


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def inspector(examples: Examples) -> InspectorModel:
    return work.trained(examples, work.small(ensemble=2)).inspector


@pytest.fixture
def folder(tmp_path: Path, inspector: InspectorModel) -> Path:
    save(tmp_path / "one", inspector)
    return tmp_path / "one"


def refused(folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(folder: Path, **changes: Any) -> None:
    path = folder / "inspector.json"
    value = json.loads(path.read_text())
    for name, change in changes.items():
        if change is None:
            del value[name]
        else:
            value[name] = change
    path.write_text(json.dumps(value))


def test_what_is_read_predicts_what_was_written(folder: Path, inspector: InspectorModel, examples: Examples) -> None:
    found = load(folder)
    for one, other in zip(found.predict(examples), inspector.predict(examples), strict=True):
        assert one is not None and other is not None
        assert np.array_equal(one, other, equal_nan=True)
    for name in ("setting", "role", "split", "seed", "config", "provenance", "dataset_sha256", "calibration"):
        assert getattr(found, name) == getattr(inspector, name)


def test_the_json_says_all_that_a_reader_needs(folder: Path, examples: Examples) -> None:
    value = json.loads((folder / "inspector.json").read_text())
    assert value["targets"] == list(COLUMNS)
    assert value["dataset_sha256"] == examples.sha256
    assert {"driple", "torch", "python"} <= value["versions"].keys()
    assert value["features"]["recipe"]["policy"] == "uniform:4"
    assert value["scalers"].keys() == {"features", "facts", "targets"}


def test_an_inspector_of_an_earlier_release_counts_loops_once(folder: Path, inspector: InspectorModel) -> None:
    value = json.loads((folder / "inspector.json").read_text())
    assert value["config"].pop("loops") == value["features"].pop("loops") == EVERY
    changed(folder, config=value["config"], features=value["features"])
    found = load(folder)
    assert found.config.loops == found.preparation.featuriser.loops == ONCE
    assert inspector.config.loops == inspector.preparation.featuriser.loops == EVERY


def test_saving_again_leaves_one_file_of_weights_and_no_old_report(
    folder: Path, inspector: InspectorModel, examples: Examples
) -> None:
    (folder / "report.md").write_text("of the old one")
    (folder / ".model-1.safetensors.00.partial").write_text("of a process that was killed")
    other = work.trained(examples, seed=7).inspector
    save(folder, other)
    assert sorted(path.name for path in folder.iterdir())[0] == "inspector.json"
    assert len(list(folder.iterdir())) == 2
    assert load(folder).seed == 7


@pytest.mark.parametrize("killed_at", ["weights", "json"])
def test_a_kill_while_saving_leaves_the_one_before(
    folder: Path, inspector: InspectorModel, examples: Examples, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """As kill -9 does it: nothing is cleaned up, and nothing more is written."""
    before = inspector.predict(examples)[0]

    class Killed(Exception):
        pass

    @contextmanager
    def dying(path: Path, mode: str = "w") -> Iterator[Any]:
        if (path.suffix == ".json") == (killed_at == "json"):
            path.with_name(f".{path.name}.00.partial").write_text("half")
            raise Killed
        with replacing(path, mode) as stream:
            yield stream

    monkeypatch.setattr(inspector_folder, "replacing", dying)
    other = work.trained(examples, seed=7).inspector
    with pytest.raises(Killed):
        save(folder, other)
    monkeypatch.undo()
    assert np.array_equal(load(folder).predict(examples)[0], before, equal_nan=True)
    save(folder, other)
    assert load(folder).seed == 7
    assert len(list(folder.iterdir())) == 2


def test_folders_that_are_no_inspector(tmp_path: Path) -> None:
    assert "no inspector" in refused(tmp_path / "nowhere")
    (tmp_path / "inspector.json").write_text("{")
    assert "not valid JSON" in refused(tmp_path)
    (tmp_path / "inspector.json").write_text("[]")
    assert "not an inspector" in refused(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "dataset"}, "not an inspector"),
        ({"schema_version": 2}, "schema version 2, this release reads 3: train it again"),
        ({"schema_version": 1}, "schema version 1, this release reads 3: train it again"),
        ({"scalers": None}, "key 'scalers' is missing"),
        ({"scalers": {}}, "scalers: expected"),
        ({"targets": ["moonlight_s"], "calibration": [1.0]}, "no target 'moonlight_s'"),
        ({"targets": []}, "targets: expected names of target columns"),
        ({"targets": ["gpu_burst_s"], "calibration": [1.0]}, "targets: not those of its scalers"),
        ({"weights": "../other/model.safetensors"}, "name of a file beside"),
        ({"weights": "gone.safetensors"}, "No such file"),
        ({"weights_sha256": "0" * 64}, "damaged"),
        ({"networks": 0}, "networks: expected 1 to 10000, got 0"),
        ({"networks": "2"}, "networks: expected 1 to 10000"),
        ({"networks": []}, "networks: expected 1 to 10000"),
        ({"layer_split": "x"}, "layer_split: expected null, or a share"),
        ({"layer_split": 1}, "layer_split: expected null, or a share"),
        ({"calibration": 3}, "calibration: expected null, or 12 factors"),
        ({"calibration": "abcdefghijkl"}, "calibration: expected null, or 12 factors"),
        ({"calibration": [-1.0] * 12}, "calibration: expected null, or 12 factors"),
        ({"calibration": [[]] * 12}, "calibration: expected null, or 12 factors"),
        ({"training": "x"}, "training: expected values of the training"),
        ({"training": {"best_epochs": 5}}, "training: expected values of the training"),
        ({"transferred_from": 5}, "transferred_from: expected null, or values of the source"),
        ({"versions": []}, "versions: expected versions by name"),
        ({"seed": True}, "seed: expected a whole number"),
        ({"role": "boss"}, "role: expected one of worker, ps"),
        ({"split": 1}, "split: expected one of architecture, random"),
        ({"provenance": 1}, "provenance: expected text"),
        ({"networks": 3}, "is missing"),
    ],
)
def test_parts_that_do_not_fit_are_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    changed(folder, **changes)
    assert message in refused(folder)


def test_a_config_of_another_shape_is_refused(folder: Path) -> None:
    value = json.loads((folder / "inspector.json").read_text())["config"]
    value["network"]["hidden"] = 7
    changed(folder, config=value)
    assert "do not fit its config" in refused(folder)
    value["network"]["hidden"] = "many"
    changed(folder, config=value)
    assert "config.network.hidden" in refused(folder)


@pytest.mark.parametrize("scale", ["features", "facts", "targets"])
@pytest.mark.parametrize("deviation", [0.0, -1.0])
def test_scales_that_cannot_be_are_refused(folder: Path, scale: str, deviation: float) -> None:
    scalers = json.loads((folder / "inspector.json").read_text())["scalers"]
    scalers[scale]["deviation"][1] = deviation
    changed(folder, scalers=scalers)
    assert "a deviation that is not more than 0" in refused(folder)


def test_weights_that_are_no_numbers_are_refused(folder: Path, inspector: InspectorModel) -> None:
    from safetensors.torch import load_file, save_file

    (weights,) = folder.glob("model-*")
    tensors = load_file(weights)
    name = next(name for name in tensors if name.startswith("0."))
    tensors[name].view(-1)[0] = float("nan")
    save_file(tensors, weights)
    changed(folder, weights_sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    assert f"{name} has values that are not finite" in refused(folder)


def test_weights_that_were_changed_are_refused(folder: Path) -> None:
    (weights,) = folder.glob("model-*")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert "damaged" in refused(folder)


def test_servers_have_a_folder_of_their_own() -> None:
    assert folder_name("cpu-p1w2-1g", "worker") == "cpu-p1w2-1g"
    assert folder_name("cpu-p1w2-1g", "ps") == "cpu-p1w2-1g-ps"
