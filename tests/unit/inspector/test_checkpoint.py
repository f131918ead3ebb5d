"""An inspector's folder: whole or not there, and read strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_work as work

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.contracts.rundir import replacing
from driple.inspector import checkpoint
from driple.inspector.checkpoint import folder_of, load, save
from driple.inspector.examples import Examples
from driple.inspector.inspector import Inspector


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def inspector(examples: Examples) -> Inspector:
    return work.trained(examples, work.small(ensemble=2)).inspector


@pytest.fixture
def folder(tmp_path: Path, inspector: Inspector) -> Path:
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


def test_what_is_read_predicts_what_was_written(folder: Path, inspector: Inspector, examples: Examples) -> None:
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


def test_saving_again_leaves_one_file_of_weights_and_no_old_report(
    folder: Path, inspector: Inspector, examples: Examples
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
    folder: Path, inspector: Inspector, examples: Examples, monkeypatch: pytest.MonkeyPatch, killed_at: str
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

    monkeypatch.setattr(checkpoint, "replacing", dying)
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
        ({"schema_version": 1}, "schema version 1, this release reads 2"),
        ({"scalers": None}, "key 'scalers' is missing"),
        ({"scalers": {}}, "scalers: expected"),
        ({"targets": ["gpu_burst_s"]}, "targets are not those"),
        ({"weights": "../other/model.safetensors"}, "name of a file beside"),
        ({"weights": "gone.safetensors"}, "No such file"),
        ({"weights_sha256": "0" * 64}, "damaged"),
        ({"networks": 0}, "at least 1"),
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


def test_weights_that_were_changed_are_refused(folder: Path) -> None:
    (weights,) = folder.glob("model-*")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert "damaged" in refused(folder)


def test_servers_have_a_folder_of_their_own() -> None:
    assert folder_of(Path("i"), "cpu-p1w2-1g", "worker") == Path("i/cpu-p1w2-1g")
    assert folder_of(Path("i"), "cpu-p1w2-1g", "ps") == Path("i/cpu-p1w2-1g-ps")
