"""Predictions by simulation, for settings that have a device file and no inspector."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import predict_work as work
import pytest

import driple
from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.cli_predict import main
from driple.inspector.predict import simulated_answer
from driple.pipeline.graph.public import read_step
from driple.simulator.simulation import simulate_workload

SETTING = "v100-p1w2-pcie"
ASK = ["--setting", SETTING, "resnet20"]
FIRST = "SIMULATED: computed by simulation from simulator/devices/v100.json; not measured"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where there are no inspectors and no devices beside those of driple."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_setting_without_inspector_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--batch-size", "32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == FIRST
    assert lines[2] == f"resnet20 b32 s32 momentum sync on {SETTING}, as a worker sees it"
    text = "\n".join(lines)
    assert "no interval and no novelty" in text and "±" not in text
    assert "device file simulator/devices/v100.json (NVIDIA Tesla V100" in text and "its fit is off by" in text
    (step,) = [line for line in lines if line.startswith("step time")]
    assert step.endswith("examples/s of the job") and "burst + idle" not in step


def test_values_are_the_means_over_the_tasks_of_the_simulator() -> None:
    (one,) = driple.predict("resnet20", setting=SETTING, batch_size=32)
    workload = Workload("resnet20", "cifar10", 32, image_size=32)
    found = simulate_workload(workload, Setting.parse(SETTING))
    every = [found.metrics(f"worker:{number}") for number in range(2)]
    for name in COLUMNS:
        assert one.metrics[name] == pytest.approx(sum(each[name] or 0 for each in every) / 2)
    assert one.step_time_s == pytest.approx(sum(each["step_s"] or 0 for each in every) / 2)
    assert one.examples_per_s == pytest.approx(64 / (one.step_time_s or 0))
    assert set(one.intervals.values()) == {None}
    assert (one.inspector, one.novelty, one.provenance, one.role) == (None, None, "simulated", "worker")
    assert one.simulation is not None and one.simulation.device_file == "simulator/devices/v100.json"
    assert driple.predict("resnet20", setting=SETTING, role="ps")[0].examples_per_s is None


def test_programs_get_the_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["predictions"]
    assert found["provenance"] == one["provenance"] == one["step_time_from"] == "simulated"
    assert (one["spread"], one["nearness"], one["inspector"]) == (None, None, None)
    assert one["simulation"]["device_file"] == "simulator/devices/v100.json" and one["simulation"]["error_pct"] > 0
    answer = driple.predict("resnet20", setting=SETTING)
    frame = answer.to_frame()
    assert list(frame["provenance"]) == ["simulated"] and frame.columns[0] == "provenance"
    assert (
        answer._repr_html_()
        .partition("</tr>")[2]
        .startswith("</thead><tbody><tr><th>provenance</th><td>simulated</td>")
    )


def test_pictures_have_it_in_their_title(empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--plot", "one.svg"]) == 0
    assert main([*ASK, "--batch-size", "16", "32", "--plot", "two.svg"]) == 0
    assert capsys.readouterr().out.count("SIMULATED: computed") == 2
    for name in ("one.svg", "two.svg"):
        assert f"(SIMULATED: {SETTING})" in (empty_folder / name).read_text()


def test_measured_and_simulated_answers_stand_side_by_side_without_a_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resnet20", "--setting", "cpu-p1w2-1g", SETTING]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == FIRST
    rows = {line.split()[0]: line.split()[-1] for line in lines if line.startswith(("cpu-", "v100-"))}
    assert rows == {"cpu-p1w2-1g": "measured", SETTING: "simulated"}
    assert "not ranked" in lines[-1] and not any(line.startswith("most ") for line in lines)


def test_simulate_is_stronger_than_an_inspector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work.shelf(tmp_path / "inspectors")
    words = ["resnet20", "--setting", work.OTHER]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("SIMULATED: inspectors/v100-p2w2-40g learned from simulated rows, not from measurements")
    assert main([*words, "--simulate"]) == 0
    assert capsys.readouterr().out.startswith(FIRST)


def test_a_folder_that_the_user_names_must_have_the_inspector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    words = [*ASK, "--inspectors", "mine"]
    error = refused(words, capsys)
    assert f"no inspector of {SETTING} for role worker in mine" in error and "--simulate answers without" in error
    assert main([*words, "--simulate"]) == 0


@pytest.mark.parametrize("words", [[], ["--simulate"]])
def test_a_setting_without_device_file_names_the_known_ones_and_the_remedy(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(["--setting", "h100-p1w2-pcie", "resnet20", *words], capsys)
    assert "h100-p1w2-pcie" in error and "no device file of h100 (there are 1080ti, 2080ti" in error
    assert "driple-calibrate --name h100 --output devices/h100.json" in error


def test_an_all_reduce_is_synchronous(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["resnet20", "--setting", "v100-p0w2-pcie"]
    error = refused([*words, "--update", "async"], capsys)
    assert "v100-p0w2-pcie: update async does not apply to strategy allreduce, which is always sync" in error
    found = driple.predict("resnet20", setting=["v100-p0w2-pcie", SETTING], update=["sync", "async"])
    modes = [(one.setting, one.workload["update"]) for one in found]
    assert modes == [("v100-p0w2-pcie", "sync"), (SETTING, "sync"), (SETTING, "async")]


def test_a_folder_of_devices_that_does_not_exist_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRIPLE_DEVICES", "nowhere")
    assert "DRIPLE_DEVICES=nowhere: no such folder" in refused(ASK, capsys)


def test_a_device_file_of_the_user_comes_first_and_is_checked(
    tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = json.loads((checkout / "simulator/devices/v100.json").read_text())
    (tmp_path / "devices").mkdir()
    own = tmp_path / "devices/h100.json"
    own.write_text(json.dumps({**value, "name": "h100", "title": "Mine"}))
    assert main(["--setting", "h100-p1w2-pcie", "resnet20"]) == 0
    assert capsys.readouterr().out.startswith("SIMULATED: computed by simulation from devices/h100.json")
    del value["parameters"]["peak_flops_per_s"]
    own.write_text(json.dumps({**value, "name": "h100"}))
    error = refused(["--setting", "h100-p1w2-pcie", "resnet20"], capsys)
    assert "parameters.peak_flops_per_s is missing; correct it, or run driple-calibrate to write a new file" in error


def test_a_graph_file_is_simulated_with_its_own_shapes(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = work.run_graph(checkout)
    (one,) = driple.predict(graph=graph, setting="v100-p1w3-pcie")
    step = read_step(graph)
    assert (one.ops, one.workload["batch_size"], one.workload["update"]) == (len(step.ops), 16, "sync")
    error = refused(["--graph", str(graph), "--setting", "v100-p2w2-pcie"], capsys)
    assert f"{graph}: the graph is of a job with 1 ps, and v100-p2w2-pcie has 2: build it for that setting" in error
    error = refused(["--graph", str(graph), "--graph-device", "ps:0", "--setting", SETTING], capsys)
    assert "--graph-device ps:0: a simulation takes the ops of the worker" in error


def test_a_graph_without_shapes_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        'node { name: "x" op: "Placeholder" device: "/job:worker/task:0" }\n'
        'node { name: "y" op: "Conv2D" input: "x" input: "x" device: "/job:worker/task:0" }\n'
    )
    (tmp_path / "bare.pbtxt").write_text(text)
    error = refused(["--graph", "bare.pbtxt", "--setting", SETTING], capsys)
    assert "bare.pbtxt: the graph has no shapes" in error and "build it again with TensorFlow" in error


def test_measured_rows_stand_beside_a_simulation(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = checkout / "datasets"
    assert main(["--setting", "cpu-p1w2-1g", "resnet20", "--measured", str(datasets)]) == 0
    capsys.readouterr()
    error = refused(["--setting", SETTING, "resnet20", "--measured", str(datasets)], capsys)
    assert f"simulated/{SETTING}.parquet: its rows are simulated, not measured" in error


def test_simulated_rows_are_refused_as_measured_ones(tmp_path: Path) -> None:
    import inspector_work

    folder = tmp_path / "datasets"
    inspector_work.write(inspector_work.zoo(), folder, lambda row: row.update(provenance="simulated"))
    with pytest.raises(BadInput, match="its rows are simulated, not measured"):
        driple.predict("resnet20", setting=inspector_work.SETTING, measured=folder)


def test_it_needs_neither_torch_nor_tensorflow_nor_igraph() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'tensorflow', 'igraph'): sys.modules[name] = None\n"
        "from driple.inspector.cli_predict import main\n"
        f"sys.exit(main({[*ASK, '--batch-size', '32']}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(FIRST)


@pytest.mark.parametrize(
    ("words", "pairs"),
    [(["v100-p20w200-1g"], 4000), (["v100-p0w1024-1g", "--topology", "clique"], 523776)],
    ids=["servers", "clique"],
)
def test_an_absurd_number_of_tasks_is_refused_in_one_line(
    words: list[str], pairs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(["resnet20", "--setting", "v100-p1w2-pcie" if len(words) == 1 else "v100-p0w2-1g", *words], capsys)
    assert f"{pairs} pairs of tasks would exchange tensors, and a simulation takes at most" in error


def test_a_simulation_that_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_answer, "EVERY_S", 0.0)
    said: list[str] = []
    driple.predict("resnet20", setting=SETTING, say=said.append)
    assert len(said) > 10 and said[0].startswith(f"{SETTING} resnet20-b32-s32-momentum-sync: 0 % simulated")
    assert said[-1].endswith(": 99 % simulated")


def test_gpus_of_a_machine_reduce_by_nccl_unless_another_backend_is_asked_for() -> None:
    both = [driple.predict("resnet20", setting="v100-p0w2-pcie", backend=backend) for backend in (None, "grpc")]
    (usual,), (grpc,) = both
    assert usual.simulation is not None and grpc.simulation is not None
    assert (usual.simulation.backend, grpc.simulation.backend) == ("nccl", "grpc")
    assert usual.step_time_s is not None and grpc.step_time_s is not None and usual.step_time_s < grpc.step_time_s
    assert "gradients by nccl, from GPU to GPU" in str(both[0])
    (alone,) = driple.predict("resnet20", setting="v100-p0w1-pcie")
    (cpu,) = driple.predict("resnet20", setting="cpu-p0w3-1g")
    assert alone.simulation is not None and alone.simulation.backend is None
    assert cpu.simulation is not None and cpu.simulation.backend == "grpc"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["v100-p1w2-pcie", "--backend", "nccl"], "backend does not apply to strategy ps"),
        (["v100-p0w2-pcie", "--backend", "nccl", "--topology", "star"], "topology star is not possible with nccl"),
        (["cpu-p0w2-1g", "--backend", "nccl"], "backend nccl needs GPUs"),
    ],
)
def test_a_backend_that_does_not_fit_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["resnet20", "--setting", *words], capsys)


def test_a_step_that_is_too_short_for_the_samples_of_a_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    told = "the GPU is sampled every 20.0 ms: its bursts and idle times say nothing about such short steps"
    assert main(["resnet20", "--setting", "v100-p0w1-pcie"]) == 0
    assert told in capsys.readouterr().out
    for words in (["vgg16", "--setting", "v100-p0w1-pcie"], ["resnet20", "--setting", "cpu-p0w2-1g"]):
        assert main(words) == 0
        assert "is sampled every" not in capsys.readouterr().out
    (short,) = driple.predict("resnet20", setting="v100-p0w1-pcie")
    assert short.coarse_s == 0.02 and short.step_time_s is not None and short.step_time_s < 0.04
