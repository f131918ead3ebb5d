"""The time model on measured rows of this repository, its folder, and the command that trains it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.formats.step_time import FILE, FOLDER
from driple.contracts.setting import Setting
from driple.inspector.cli_train_time import main
from driple.inspector.data.array_types import FloatArray
from driple.inspector.time import held_out, time_folder
from driple.inspector.time.simulated_steps import StepSimulator
from driple.inspector.time.time_model import TimeModel
from driple.inspector.time.time_predictor import ANCHORED, MEASURED_SETTING, NEW_SETTING, TimePredictor
from driple.inspector.time.time_rows import Machines, TimeRow, read_time_rows, step_times
from driple.inspector.time.train_time import noise_of
from driple.simulator.simulation import MachineSpeed

DATASETS = Path(__file__).parents[3] / "datasets"
OLD = ("cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p2w2-1g")


@pytest.fixture(scope="module")
def rows() -> tuple[TimeRow, ...]:
    return read_time_rows(DATASETS, OLD)


@pytest.fixture(scope="module")
def unseen(rows: tuple[TimeRow, ...]) -> FloatArray:
    """Predictions of each row by a model without its family."""
    return held_out.of_families(rows)


@pytest.fixture(scope="module")
def predictor(rows: tuple[TimeRow, ...], unseen: FloatArray) -> TimePredictor:
    errors = held_out.errors_of(rows, unseen)
    sites = dict.fromkeys(row.site for row in rows)
    by_site = {
        site: tuple(float(one) for one, row in zip(errors, rows, strict=True) if row.site == site) for site in sites
    }
    counts = {site: len(own) for site, own in by_site.items()}
    return TimePredictor(TimeModel.fit(rows), by_site, (0.1, -0.1), (0.2, -0.2), counts, "resnet56")


def test_rows_are_workloads_with_the_mean_step_of_their_runs(rows: tuple[TimeRow, ...]) -> None:
    table = pq.read_table(DATASETS / "cpu-p1w2-1g.parquet", columns=["run_id", "role", "step_s"]).to_pylist()
    row = max((one for one in rows if str(one.setting) == "cpu-p1w2-1g"), key=lambda one: len(one.repeats))
    own = [one["step_s"] for one in table if one["run_id"] in row.example.run_ids and one["role"] == "worker"]
    assert len(row.repeats) == len(row.example.run_ids) > 1
    assert row.step_s == pytest.approx(np.mean(own))
    assert len(noise_of(row)) == len(row.repeats)


def test_old_rows_of_one_machine_have_one_label(rows: tuple[TimeRow, ...]) -> None:
    labels = {str(row.setting): row.machine for row in rows}
    assert labels["cpu-p1w2-1g"] == labels["cpu-p2w2-1g"] != labels["cpu-p1w1-1g"]


def test_fingerprints_that_are_nearly_equal_are_one_machine() -> None:
    first = Fingerprint(2, 2e9, 3e7, 1.9, 2e10, 5e-5, 3e9)
    machines = Machines()
    label = machines.label_of(first)
    assert machines.label_of(replace(first, hash_bytes_per_s=2.09e9)) == label
    assert machines.label_of(replace(first, hash_bytes_per_s=2.2e9)) != label
    assert len(machines.fingerprints) == 2
    again = Machines(machines.fingerprints)
    assert again.label_of(first) == label and len(again.fingerprints) == 2


def test_held_out_families_are_not_in_the_fit(rows: tuple[TimeRow, ...]) -> None:
    some = [row for row in rows if str(row.setting) == "cpu-p1w1-1g"]
    before = held_out.of_families(some)
    spoiled = [replace(row, step_s=row.step_s * (100 if row.family == "vgg" else 1)) for row in some]
    after = held_out.of_families(spoiled)
    vgg = np.array([row.family == "vgg" for row in some])
    assert after[vgg] == pytest.approx(before[vgg])
    assert np.abs(after[~vgg] / before[~vgg] - 1).max() > 0.01


def test_unseen_families_are_predicted_better_than_by_the_mean(rows: tuple[TimeRow, ...], unseen: FloatArray) -> None:
    seconds = step_times(rows)
    mean = np.exp(np.log(seconds).mean())
    assert np.abs(unseen / seconds - 1).mean() < 0.2 * np.abs(mean / seconds - 1).mean()


def test_a_setting_that_is_left_out_is_predicted_from_its_machine(rows: tuple[TimeRow, ...]) -> None:
    model = TimeModel.fit([row for row in rows if str(row.setting) != "cpu-p2w2-1g"])
    own = [row for row in rows if str(row.setting) == "cpu-p2w2-1g"]
    errors = np.abs(model.predict(own) / step_times(own) - 1)
    assert np.median(errors) < 0.25
    assert model.most_like(own[0].site)[0] == "cpu-p1w2-1g"


def test_a_machine_needs_an_anchor(rows: tuple[TimeRow, ...]) -> None:
    machine = next(row.machine for row in rows if str(row.setting) == "cpu-p1w1-1g")
    model = TimeModel.fit([row for row in rows if row.machine != machine])
    own = [row for row in rows if row.machine == machine]
    with pytest.raises(BadInput, match=r"no measured run on machine .*--anchors"):
        model.predict(own)
    anchored = model.with_anchors([held_out.best_anchor(own)])
    assert np.median(np.abs(anchored.predict(own) / step_times(own) - 1)) < 0.35


def test_anchors_of_a_setting_replace_all_its_numbers(rows: tuple[TimeRow, ...]) -> None:
    own = [row for row in rows if str(row.setting) == "cpu-p1w1-1g"]
    model = TimeModel.fit(rows)
    slower = [replace(row, step_s=3 * row.step_s) for row in own[:30:3]]
    anchored = model.with_anchors(slower)
    assert np.median(anchored.predict(own) / model.predict(own)) == pytest.approx(3, rel=0.35)


def test_what_is_known_of_a_site_decides_its_errors(rows: tuple[TimeRow, ...], predictor: TimePredictor) -> None:
    row = rows[0]
    measured = predictor.predict(row.example, row.setting, None)
    assert measured.basis == MEASURED_SETTING
    assert len(measured.distribution.errors) == 162
    other = Setting.parse("cpu-p1w3-1g")
    with pytest.raises(BadInput, match=r"its machine is not known; measure resnet56 there .*--anchors.*--machine-of"):
        predictor.predict(row.example, other, None)
    new = predictor.predict(row.example, other, None, machine=row.machine)
    assert (new.basis, new.distribution.errors) == (NEW_SETTING, (-0.1, 0.1))
    anchored = predictor.with_anchors([row], {})
    assert anchored.predict(row.example, row.setting, None).basis == ANCHORED


def test_a_stored_predictor_predicts_the_same(
    tmp_path: Path, rows: tuple[TimeRow, ...], predictor: TimePredictor
) -> None:
    prints = {"m": Fingerprint(2, 2e9, 3e7, 1.9, 2e10, 5e-5, 3e9)}
    time_folder.save(tmp_path / FOLDER, predictor, prints, datasets={"cpu-p1w1-1g": "0" * 64}, versions={})
    assert time_folder.find(tmp_path) == tmp_path / FOLDER
    stored = time_folder.load(tmp_path / FOLDER)
    assert stored.fingerprints == prints
    for row in rows[::50]:
        first, second = (one.predict(row.example, row.setting, 0.5) for one in (predictor, stored.predictor))
        assert first.distribution.seconds == pytest.approx(second.distribution.seconds, rel=1e-9)
        assert first.distribution.interval() == pytest.approx(second.distribution.interval(), rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "inspector"}, "not a time model"),
        ({"schema_version": 99}, "schema version 99"),
        ({"weights": "../other"}, "expected the name of a file beside"),
        ({"weights_sha256": "0" * 64}, "damaged"),
        ({"model": {}}, "missing"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(
    tmp_path: Path, predictor: TimePredictor, change: dict[str, object], message: str
) -> None:
    time_folder.save(tmp_path, predictor, {}, datasets={}, versions={})
    value = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**value, **change}))
    with pytest.raises(BadInput, match=message) as caught:
        time_folder.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_command_trains_prints_and_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    shutil.copy(DATASETS / "cpu-p1w1-1g.parquet", datasets)  # without training steps: only those of the zoo
    assert main(["--datasets", str(datasets), "--output", str(tmp_path / "inspectors"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (found,) = printed["settings"]
    assert found["workloads"] == 162 and found["new_machine"] is None
    assert 50 < found["coverage"] <= 100
    assert time_folder.load(tmp_path / "inspectors" / FOLDER).predictor.model.machines == (found["machine"],)


def test_no_datasets_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--datasets", str(tmp_path), "--output", str(tmp_path / "inspectors")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "inspectors").exists()


def test_the_speed_of_a_machine_is_found_again(rows: tuple[TimeRow, ...]) -> None:
    simulator = StepSimulator(DATASETS)
    some = [row for row in rows if str(row.setting) == "cpu-p1w1-1g"][:30:6]
    speed = MachineSpeed(4.0)
    faster = [replace(row, step_s=simulator.seconds(row, speed) or row.step_s) for row in some]
    assert simulator.speed_of(faster).speed == pytest.approx(4.0, rel=0.05)
    assert simulator.speed_of(faster).arithmetic == 1.0  # too few rows


def test_faster_arithmetic_is_found_again(rows: tuple[TimeRow, ...]) -> None:
    simulator = StepSimulator(DATASETS)
    some = [row for row in rows if str(row.setting) == "cpu-p1w1-1g" and row.family in ("resnet", "ncf")][::5]
    speed = MachineSpeed(2.0, 4.0)
    faster = [replace(row, step_s=simulator.seconds(row, speed) or row.step_s) for row in some]
    found = simulator.speed_of(faster)
    assert (found.speed, found.arithmetic) == pytest.approx((2.0, 4.0), rel=0.1)
