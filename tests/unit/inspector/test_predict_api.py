"""The public functions for predictions: typed results, silence, and few packages."""

from __future__ import annotations

import dataclasses
import logging
import math
import subprocess
import sys
from pathlib import Path

import predict_work as work
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.metrics import GPU, NET_RX, NET_TX
from driple.inspector.model import store
from driple.inspector.predict.predict_workload import predict
from driple.inspector.predict.prediction import Prediction, Predictions
from driple.inspector.predict.predictor import Inspector

BLOCKED = ("dgl", "tensorboard", "tensorflow", "matplotlib", "pandas", "sklearn", "joblib", "optuna")


@pytest.fixture(scope="module")
def inspectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict") / "inspectors"
    work.shelf(folder)
    return folder


@pytest.fixture(scope="module")
def graph() -> Path:
    return work.run_graph(Path(__file__).resolve().parents[3])


@pytest.fixture(scope="module")
def found(inspectors: Path, graph: Path) -> Predictions:
    return predict(graph=graph, setting=[work.SETTING, work.OTHER], inspectors=inspectors)


def without(one: Prediction, *prefixes: str) -> Prediction:
    values = [math.nan if name.startswith(prefixes) else v for name, v in zip(one.columns, one.values, strict=True)]
    return dataclasses.replace(one, values=tuple(values))


def test_the_result_has_metrics_intervals_novelty_and_step_time(found: Predictions) -> None:
    assert [one.setting for one in found] == [work.SETTING, work.OTHER]
    one = found[0]
    value = one.metrics["net_rx_burst_s"]
    interval = one.intervals["net_rx_burst_s"]
    assert value is not None and interval is not None
    assert interval[0] < value < interval[1]
    assert one.metrics["gpu_mem_burst_s"] is None and one.intervals["gpu_mem_burst_s"] is None
    assert one.novelty is not None and one.novelty.verdict in ("like", "edge", "far")
    assert one.workload["model"] == "resnet20"
    assert one.step_time_s == pytest.approx(one.cycle_of(NET_RX))
    assert isinstance(found[:1], Predictions) and len(found[:1]) == 1


def test_the_step_time_is_that_of_rx_then_tx_then_any(found: Predictions) -> None:
    one = found[0]
    assert one.step_time is not None and one.step_time.resource is NET_RX
    sent = without(one, "net_rx")
    assert sent.step_time is not None and sent.step_time.resource is NET_TX
    assert sent.step_time_s == pytest.approx(one.cycle_of(NET_TX))
    cpu = without(one, "net")
    assert cpu.step_time is not None and cpu.step_time.resource is GPU
    assert cpu.step_time_s == pytest.approx(one.cycle_of(GPU))
    nothing = without(one, "net", "gpu")
    assert nothing.step_time is None and nothing.examples_per_s is None


def test_a_frame_and_a_table_for_notebooks(found: Predictions) -> None:
    frame = found.to_frame()
    assert list(frame["setting"]) == [work.SETTING, work.OTHER]
    assert frame["net_rx_burst_s"][0] == found[0].metrics["net_rx_burst_s"]
    assert frame["net_rx_burst_s_spread"][0] > 0
    page = found._repr_html_()
    assert page.startswith("<table>") and "net_rx_burst_s" in page and " ± " in page
    assert "gpu_mem_burst_s" not in page


def test_an_inspector_is_loaded_by_folder_or_setting_and_predicts(
    inspectors: Path, graph: Path, found: Predictions
) -> None:
    for where in (Inspector.load(inspectors / work.SETTING), Inspector.load(work.SETTING, inspectors=inspectors)):
        assert where.setting == work.SETTING
        assert where.predict(graph=graph)[0].metrics == found[0].metrics
    with pytest.raises(BadInput, match="no inspector of cpu-p9w9-1g"):
        Inspector.load("cpu-p9w9-1g", inspectors=inspectors)


def test_without_a_folder_the_local_ones_come_before_the_installed_ones(
    inspectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "installed_data", lambda name: inspectors)
    assert store.find(None, work.SETTING, "worker") == inspectors / work.SETTING
    (tmp_path / "inspectors").symlink_to(inspectors)
    assert store.find(None, work.SETTING, "worker") == Path("inspectors") / work.SETTING
    monkeypatch.setattr(store, "installed_data", lambda name: None)
    (tmp_path / "inspectors").unlink()
    with pytest.raises(BadInput, match="there is no such folder"):
        store.find(None, work.SETTING, "worker")


def test_it_is_silent(inspectors: Path, graph: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers), logging.getLogger().level
    predict(graph=str(graph), setting=work.SETTING, inspectors=str(inspectors))
    assert capfd.readouterr() == ("", "")
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_names_are_checked(inspectors: Path, graph: Path) -> None:
    with pytest.raises(UnknownName):
        predict(graph=graph, setting=work.SETTING, inspectors=inspectors, update="later")
    with pytest.raises(BadInput, match="did you mean 'resnet56'"):
        predict("resnt56", setting=work.SETTING, inspectors=inspectors)


def test_a_prediction_needs_few_packages(inspectors: Path, graph: Path) -> None:
    """As in an environment without training, reports and TensorFlow."""
    code = (
        "import sys\n"
        f"blocked = {BLOCKED!r}\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in blocked: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from driple.inspector.cli_predict import main\n"
        "code = main(sys.argv[1:])\n"
        "print('loaded', sorted({n.partition('.')[0] for n in sys.modules} & set(blocked)))\n"
        "sys.exit(code)\n"
    )
    words = [*work.options(inspectors, setting=work.SETTING), "--graph", str(graph)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "examples/s of the job" in done.stdout
    assert done.stdout.endswith("loaded []\n")
