"""Predictions for graphs of PyTorch and of ONNX files: simulated, by shipped inspectors, and refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import driple
from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.inspector.cli_predict import main
from driple.inspector.predict import graph_cache, request
from driple.inspector.predict.novelty import FAR
from driple.workloads.graphs import graph_writer
from driple.workloads.runtime.job import job_without_hosts, workload_of
from driple.workloads.torch_graphs import torch_zoo_graph

SERVERS = "cpu-p2w2-1g"
RING = "cpu-p0w4-1g"
UNSEEN = (
    "its graph is of {}, and no training graph is (all are of TensorFlow): the distance does not cover other kernels"
    " and another runtime"
)
DERIVED = "an ONNX file has the forward pass only: loss, gradients and updates are derived from it by rule"
OWN = """
import torch
from torch import nn

def tiny():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    return net, torch.zeros(1, 3, 32, 32)

def broken():
    raise ValueError("no")
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One cache for all tests: building a graph takes a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.zeros(12, 3, 8, 8),),
            str(path),
            dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
    return path


def test_a_model_of_the_zoo_in_torch_is_simulated_with_its_own_graph() -> None:
    (torch_one,) = driple.predict("resnet20", setting=RING, framework="torch")
    (tensorflow_one,) = driple.predict("resnet20", setting=RING)
    assert (torch_one.framework, tensorflow_one.framework) == ("torch", "tensorflow")
    assert torch_one.workload["framework"] == "torch" and torch_one.ops != tensorflow_one.ops
    assert torch_one.step_time_s == pytest.approx(tensorflow_one.step_time_s, rel=0.15)
    assert torch_one.traffic is not None and tensorflow_one.traffic is not None
    # The same bytes; gloo's ring goes the other way round.
    assert torch_one.traffic.bytes == tensorflow_one.traffic.bytes
    assert {(b, a) for a, b in torch_one.traffic.pairs} == set(tensorflow_one.traffic.pairs)
    assert torch_one.graph_notes == ("the simulator has op times and runtime costs of TensorFlow, not of PyTorch",)
    assert tensorflow_one.graph_notes == ()


def test_an_own_model_and_an_inspector_of_another_framework(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--setting", SERVERS, "--torch", f"{own}:tiny", "--batch-size", "16"]
    assert main([*words, "--dataset", "cifar10"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("own.py:tiny b16 s32 momentum sync torch on cpu-p2w2-1g")
    lines = [line[14:] for line in text.splitlines()]
    (verdict,) = [line for line in lines if line.startswith("far outside the training data: take with care: ")]
    assert lines[lines.index(verdict) + 1] == UNSEEN.format("PyTorch")
    assert "PyTorch has no strategy ps: the answer is for TensorFlow's, with this model" in lines
    assert "torch yes (training: no)" in text
    assert main([*words, "--dataset", "cifar10", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["predictions"]
    assert one["graph"]["framework"] == "torch" and len(one["graph"]["notes"]) == 1
    near = one["nearness"]
    assert (near["verdict"], near["framework"], near["framework_seen"]) == (FAR, "torch", False)
    assert near["training_frameworks"] == ["tensorflow"] and near["framework_note"] == UNSEEN.format("PyTorch")
    # Variables are on the servers, as TensorFlow would place them.
    assert one["traffic"]["flows"] == 8 and one["traffic"]["topology"] == "ps"
    # With several answers the line is said once.
    assert main([*words[:-1], "16", "64", "--dataset", "cifar10"]) == 0
    assert capsys.readouterr().out.count(UNSEEN.format("PyTorch")) == 1


def test_in_python_too(own: Path) -> None:
    answers = driple.predict(torch=f"{own}:tiny", setting=[SERVERS, RING], batch_size=16, dataset="cifar10")
    by_inspector, simulated = answers
    assert by_inspector.novelty is not None and simulated.novelty is None
    assert by_inspector.novelty.verdict == FAR and not by_inspector.novelty.framework_seen
    assert by_inspector.novelty.framework_line == UNSEEN.format("PyTorch")
    assert [row["framework_seen"] for row in answers.rows()] == [False, None]
    assert by_inspector.query.known.framework == "tensorflow" and simulated.query.known.framework == "torch"
    assert simulated.query.known.backend == "gloo"
    inspector = driple.Inspector.load(SERVERS)
    (again,) = inspector.predict(torch=f"{own}:tiny", batch_size=16, dataset="cifar10")
    assert again.metrics == by_inspector.metrics


def test_a_graph_that_a_torch_worker_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = workload_of("lenet", None, 8, strategy="allreduce", framework="torch", topology="star")
    path = tmp_path / "worker.parquet"
    job = job_without_hosts(Setting.parse(RING), workload)
    graph_writer.write(torch_zoo_graph.of_job(job, "worker:0"), path)
    (answer,) = driple.predict(graph=path, setting=RING)
    assert (answer.framework, answer.workload["batch_size"]) == ("torch", 8)
    assert answer.traffic is not None and answer.traffic.topology == "star"
    (other,) = driple.predict(graph=path, setting=RING, topology="clique")
    assert other.traffic is not None and other.traffic.topology == "clique"
    with pytest.raises(BadInput, match="a graph for batch_size 8, not 16"):
        driple.predict(graph=path, setting=RING, batch_size=16)
    average = workload_of("lenet", None, 8, strategy="pair_averaging", update="async", framework="torch")
    graph_writer.write(torch_zoo_graph.of_job(job_without_hosts(Setting.parse(RING), average), "worker:0"), path)
    (averaged,) = driple.predict(graph=path, setting=RING)
    assert averaged.traffic is not None and averaged.traffic.topology == "pair_averaging"
    assert averaged.traffic.bytes == pytest.approx(averaged.traffic.sent("worker:0") * 4)
    assert main(["--graph", str(path), "--setting", "cpu-p0w1-1g"]) == 2
    error = capsys.readouterr().err
    assert "strategy pair_averaging needs at least 2 workers" in error and error.count("\n") == 1


def test_pair_averaging_of_a_model_of_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lenet", "--setting", "cpu-p0w4-1g", "--strategy", "pair_averaging"]
    assert main([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["predictions"]
    assert told["workload"]["update"] == "async" and told["workload"]["framework"] == "torch"
    traffic = told["traffic"]
    assert (traffic["topology"], traffic["flows"]) == ("pair_averaging", 12)
    assert len({size for *_, size in traffic["pairs"]}) == 1
    # Peers are chosen at random; each worker takes one model a step.
    assert traffic["simulated"]["bytes"] == pytest.approx(traffic["bytes"], rel=0.25)
    assert main(words) == 0
    assert "payload by formula (pair averaging)" in capsys.readouterr().out
    for more, error in (
        (["--topology", "star"], "topology does not apply to strategy pair_averaging"),
        (["--backend", "gloo"], "backend does not apply to strategy pair_averaging"),
        (["--framework", "tensorflow"], "strategy pair_averaging: TensorFlow does not have it (it is in PyTorch)"),
        (["--update", "sync"], "update sync does not apply to strategy pair_averaging, which is always async"),
        (["--setting", "cpu-p1w4-1g"], "strategy pair_averaging needs no servers (p0)"),
        (["--setting", "cpu-p0w1-1g"], "strategy pair_averaging needs at least 2 workers"),
    ):
        assert main([*words, *more]) == 2
        assert error in (said := capsys.readouterr().err) and len(said.splitlines()) == 1
    assert main(["nasnet", *words[1:]]) == 2
    assert "nasnet: framework torch does not have it" in capsys.readouterr().err


def test_an_onnx_file_says_what_is_derived(onnx_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--setting", SERVERS, "--graph", str(onnx_file)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("tiny.onnx b12 momentum sync on cpu-p2w2-1g")  # the batch size of the file
    assert DERIVED in text and UNSEEN.format("ONNX") in text
    simulated, by_inspector = driple.predict(graph=onnx_file, setting=[RING, SERVERS], dataset="imagenet", size=8)
    assert simulated.graph_notes[0] == by_inspector.graph_notes[0] == DERIVED and len(simulated.graph_notes) == 2
    assert simulated.workload["batch_size"] == 12 and simulated.step_time_s is not None
    assert simulated.examples_per_s == 12 * 4 / simulated.step_time_s
    weights = 4 * (3 * 3 * 3 * 8 + 8 + 2 * 8 + 8 * 36 * 10 + 10)
    assert simulated.traffic is not None and simulated.traffic.bytes == pytest.approx(2 * 3 * weights)
    plain = by_inspector.query.workload
    assert "framework" not in plain and plain["image_size"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--torch", "OWN:broken"], "own.py:broken: ValueError at line 13: no"),
        (["--torch", "OWN"], "--torch 'OWN': expected file.py:function"),
        (["--torch", "OWN:none"], "unknown function 'none'"),
        (["--torch", "nowhere.py:tiny"], "--torch nowhere.py: No such file"),
        (["--torch", "OWN:tiny", "resnet20"], "name one model"),
        (["--torch", "OWN:tiny", "--framework", "torch"], "--framework goes with the name of a model"),
        (["--torch", "OWN:tiny", "--size", "32"], "--size with --graph or --torch: say with --dataset"),
        (["resnet20_v2", "--framework", "torch"], "resnet20_v2: framework torch does not have it"),
        (["--graph", "BAD"], "bad.onnx: not an ONNX file"),
        (["--graph", "CUT"], "cut.onnx: not an ONNX file, or cut short"),
        (["--graph", "ONNX", "--batch-size", "4"], "tiny.onnx: its batch size is 12, not 4: leave the batch size out"),
        (["--graph", "ONNX", "--graph-device", "worker:0"], "an ONNX file names no devices"),
        (["--graph", "ONNX", "--width", "2"], "--width does not apply to an ONNX file"),
        (["--graph", "none.onnx"], "--graph none.onnx: No such file"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, own: Path, onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, cut = tmp_path / "bad.onnx", tmp_path / "cut.onnx"
    bad.write_bytes(b"#!/bin/sh\nexit\n" * 50)
    cut.write_bytes(onnx_file.read_bytes()[:-20])
    places = {"OWN": own, "BAD": bad, "CUT": cut, "ONNX": onnx_file}
    named = [word if word == "OWN" else _with_places(word, places) for word in words]
    assert main([*named, "--setting", RING]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("making 1 graph")]
    assert len(error) == 1 and message in error[0]


def _with_places(word: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        word = word.replace(name, str(path))
    return word


def test_torch_has_no_servers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet20", "--framework", "torch", "--setting", SERVERS]) == 2
    assert f"{SERVERS}: PyTorch has no parameter servers; name a setting without (p0)" in capsys.readouterr().err


def test_without_a_package_its_extra_is_named(
    own: Path, onnx_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(graph_cache, "find_spec", lambda name: None)
    models: dict[str, dict[str, Any]] = {"workloads-torch": {"torch": f"{own}:tiny"}, "onnx": {"graph": onnx_file}}
    for extra, model in models.items():
        with pytest.raises(BadInput) as caught:
            driple.predict(setting=RING, **model)
        assert f"pip install 'driple[{extra}]'" in str(caught.value) and "\n" not in str(caught.value)


def test_a_graph_is_known_by_all_that_makes_it(own: Path, onnx_file: Path, tmp_path: Path) -> None:
    def keys(**said: Any) -> set[str]:
        asked = request.request_of(None, **{"setting": RING, **said})
        return {one.source.key for one in request.queries(asked) if not isinstance(one.source, request.GraphFile)}

    first: dict[str, Any] = {"torch": f"{own}:tiny"}
    others: list[dict[str, Any]] = [
        *({**first, **more} for more in ({"batch_size": 5}, {"dataset": "cifar10"}, {"width": 0.5}, {"sharding": "x"})),
        *({**first, **more} for more in ({"optimiser": "adam"}, {"setting": SERVERS}, {"setting": "v100-p0w4-1g"})),
        *({"torch": f"{own}:broken"}, {"graph": onnx_file}, {"graph": onnx_file, "batch_size": 12}),
    ]
    every = [first, *others]
    assert len(set().union(*(keys(**one) for one in every))) == len(every)
    moved = tmp_path / "moved.py"
    moved.write_text(own.read_text())
    assert keys(torch=f"{moved}:tiny") == keys(**first)
    moved.write_text(f"{own.read_text()}\n")
    assert keys(torch=f"{moved}:tiny") != keys(**first)


def test_a_file_from_before_frameworks_is_of_tensorflow(checkout: Path, tmp_path: Path) -> None:
    table = pq.read_table(checkout / "tests/data/graphs/tiny.parquet")
    assert "framework" not in table.column_names
    (answer,) = driple.predict(graph=checkout / "tests/data/graphs/tiny.parquet", setting="cpu-p1w2-1g")
    assert answer.framework == "tensorflow" and answer.novelty is not None and answer.novelty.framework_seen
