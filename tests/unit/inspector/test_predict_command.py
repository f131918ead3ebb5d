"""driple-predict as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import predict_work as work
import pytest

from driple.contracts.metrics import COLUMNS
from driple.inspector import cli_predict
from driple.inspector.cli_predict import main
from driple.inspector.model.inspector_folder import load
from driple.inspector.predict import graph_cache
from driple.pipeline.graph.public import read_graph

Predict = Callable[..., int]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict") / "inspectors"
    work.shelf(folder)
    return folder


@pytest.fixture
def graph(checkout: Path) -> Path:
    return work.run_graph(checkout)


@pytest.fixture
def predict(shelf: Path) -> Predict:
    def run(*words: str, **said: Any) -> int:
        said = {"setting": work.SETTING, **said}
        return main([*work.options(shelf, **said), *words])

    return run


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graph: Path) -> list[list[str]]:
    """Stands in for the process that makes graphs, and notes how it was called."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        (out,) = [word.removeprefix("--out=") for word in command if word.startswith("--out=")]
        Path(out).write_bytes(graph.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    # Not subprocess.run itself: libraries that are loaded meanwhile use it too.
    monkeypatch.setattr(graph_cache, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))
    monkeypatch.setattr(graph_cache, "_need_maker", lambda wanted: None)
    monkeypatch.setattr(graph_cache, "stored_graph", lambda workload, setting: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def test_a_graph_file_gives_a_table_of_the_twelve(
    predict: Predict, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(graph=graph) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"resnet20 b16 s32 momentum sync on {work.SETTING}, as a worker sees it")
    assert "SIMULATED" not in out
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert "±" in rows["CPU utilisation"] and rows["CPU utilisation"].endswith("%")
    assert rows["network TX"].endswith("B/s")
    assert "GPU memory" not in rows
    assert out.count("not measured on this device: GPU memory\n") == 1
    assert "(burst + idle of network RX)" in out
    assert "27 measured workloads (architecture split), 2 networks" in out
    assert "examples/s of the job" in out
    assert "nearest are" in out


def test_json_says_what_the_inspector_says(
    predict: Predict, shelf: Path, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict("--json", graph=graph) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["predictions"]
    assert (found["schema"], found["schema_version"]) == ("predictions", 1)
    values, spread = load(shelf / work.SETTING).predict_one(read_graph(graph), one["workload"])
    assert list(one["metrics"]) == list(COLUMNS)
    for named, said in ((one["metrics"], values), (one["spread"], spread)):
        assert said is not None
        again = np.array([np.nan if value is None else value for value in named.values()])
        np.testing.assert_allclose(again, said, rtol=1e-6)
    assert one["metrics"]["gpu_mem_burst_s"] is None
    assert one["workload"]["update"] == "sync" and one["workload"]["family"] == "resnet"
    assert one["nearness"]["verdict"] in ("like", "edge", "far")
    assert len(one["nearness"]["nearest"]) == 3
    step = one["metrics"]["net_rx_burst_s"] + one["metrics"]["net_rx_idle_s"]
    assert (one["step_time_s"], one["step_time_from"]) == (pytest.approx(step), "net_rx")
    assert one["cycle_s"]["least"] <= step <= one["cycle_s"]["greatest"]
    assert one["examples_per_s"] == pytest.approx(2 * 16 / step)


def test_a_simulated_inspector_says_so_first(predict: Predict, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(graph=graph, setting=work.OTHER) == 0
    assert capsys.readouterr().out.startswith("SIMULATED")
    assert predict("--json", graph=graph, setting=work.OTHER) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["provenance"] == "simulated"


def test_parameter_servers_have_their_own_inspector(
    predict: Predict, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(graph=graph, role="ps") == 0
    out = capsys.readouterr().out
    assert "as a parameter server sees it" in out
    assert f"{work.SETTING}-ps" in out
    assert "examples/s" not in out


def test_a_model_of_the_zoo_comes_through_the_cache(
    predict: Predict, tensorflow: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name may come right after an option that takes several values."""
    ways = (
        ("--setting", work.SETTING, "resnet56", "--batch-size", "64", "--update", "sync"),
        ("--setting", work.SETTING, "--batch-size", "64", "--update", "sync", "resnet56"),
        ("--setting", work.SETTING, "--update", "sync", "--batch-size", "64", "resnet56"),
        ("resnet56", "--batch-size", "64", "--setting", work.SETTING),
    )
    for words in ways:
        assert predict(*words) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith("resnet56 b64 s32 momentum sync on ")
        assert ("making 1 graph" in captured.err) == (words is ways[0])
    (command,) = tensorflow
    assert command[:4] == [sys.executable, "-m", "driple.workloads.cli", "graph"]
    said = {"--model=resnet56", "--batch-size=64", "--update=sync", f"--setting={work.SETTING}", "--size=32"}
    assert said <= set(command)
    assert predict("resnet56", "--fresh", batch_size=64) == 0
    assert len(tensorflow) == 2


def test_several_give_a_table_and_a_picture(
    predict: Predict, tensorflow: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "what-if.png"
    settings = [work.SETTING, work.OTHER]
    assert predict("resnet20", setting=settings, batch_size=[16, 64], update=["sync", "async"], plot=picture) == 0
    out = capsys.readouterr().out
    (head,) = [line for line in out.splitlines() if line.startswith("setting ")]
    assert head.split()[:3] == ["setting", "batch", "update"] and "CPU/GPU burst" in head
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith((work.SETTING, work.OTHER))]
    assert rows == [[s, str(b), u] for s in settings for b in (16, 64) for u in ("sync", "async")]
    assert "measured and simulated answers side by side: not ranked" in out and "most  " not in out
    assert head.split()[-1] == "provenance"
    assert out.startswith(f"SIMULATED: {tmp_path.parent}") or out.startswith("SIMULATED: ")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(tensorflow) == 8  # of a CPU and of a GPU, two batch sizes, two modes


def test_one_answer_has_a_picture_of_its_pattern(predict: Predict, graph: Path, tmp_path: Path) -> None:
    assert predict(graph=graph, plot=tmp_path / "one.svg") == 0
    text = (tmp_path / "one.svg").read_text()
    assert "<svg" in text
    assert predict(graph=graph, setting=[work.SETTING, work.OTHER], plot=tmp_path / "two.png") == 0
    assert (tmp_path / "two.png").stat().st_size > 10_000


def test_a_graphdef_needs_no_name(predict: Predict, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tiny.pb", "tiny.pbtxt"):
        assert predict(graph=checkout / "tests/data/graphs" / name, batch_size=8) == 0
        out = capsys.readouterr().out
        assert out.startswith("model b8 on ")
        assert "training data" in out


def test_own_code_is_given_on(
    predict: Predict, tensorflow: list[list[str]], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"{checkout}/tests/data/own_model.py:build"
    assert predict(code=code, dataset="cifar10") == 0
    assert predict(code, dataset="cifar10") == 0
    (command,) = tensorflow
    assert f"--model={code}" in command and "--dataset=cifar10" in command
    assert "own_model.py:build b32 s32" in capsys.readouterr().out
    assert predict(code=code) == 2
    assert "say with --dataset what it reads" in capsys.readouterr().err


def refused(run: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> str:
    assert run() == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("words", "said", "message"),
    [
        (["resnt56"], {}, "did you mean 'resnet56'?"),
        ([], {}, "name one model"),
        (["resnet56"], {"setting": "cpu-p9w9-1g"}, "it has cpu-p1w2-1g, v100-p2w2-40g, cpu-p1w2-1g for ps"),
        (["resnet56"], {"setting": "cpu-p9w9-1g"}, "driple-train --setting cpu-p9w9-1g"),
        (["resnet56"], {"setting": work.OTHER, "role": "ps"}, f"driple-train --setting {work.OTHER} --role ps"),
        (["resnet56"], {"setting": "nonsense"}, "is not a setting"),
        (["resnet56"], {"batch_size": 0}, "batch size: expected 1 or more"),
        (["resnet56"], {"batch_size": "many"}, "--batch-size: expected whole numbers"),
        (["resnet56"], {"update": "later"}, "unknown update 'later'"),
        (["resnet56"], {"dataset": "imagenet"}, "resnet56 is trained on cifar10"),
        (["resnet56"], {"dataset": "mnist"}, "unknown dataset 'mnist'"),
        (["resnet56"], {"width": 0}, "width: expected a number above 0"),
        (["resnet56"], {"size": 0}, "size: expected 1 or more"),
        (["resnet56"], {"graph": "g.pb"}, "name one model"),
        ([], {"code": "nowhere.py:build", "dataset": "cifar10"}, "No such file"),
        ([], {"code": "nowhere.py", "dataset": "cifar10"}, "expected file.py:function"),
        ([], {"graph": "nowhere.pb"}, "nowhere.pb: no such file"),
        ([], {"graph": "nowhere.pb", "size": 8}, "say with --dataset"),
    ],
)
def test_bad_input_is_one_line(
    predict: Predict, words: list[str], said: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(lambda: predict(*words, **said), capsys)


def test_a_graph_file_is_of_one_workload(
    predict: Predict, graph: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "a graph for batch_size 16, not 64" in refused(lambda: predict(graph=graph, batch_size=64), capsys)
    assert "a graph for update sync, not async" in refused(lambda: predict(graph=graph, update="async"), capsys)
    assert "a graph for image_size 32, not 64" in refused(lambda: predict(graph=graph, size=64), capsys)
    fixed = checkout / "tests/data/graphs/tiny.pb"
    assert "its shapes are fixed" in refused(lambda: predict(graph=fixed, batch_size=[8, 16]), capsys)


def test_pictures_that_cannot_be_written(
    predict: Predict, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no format 'doc'" in refused(lambda: predict(graph=graph, plot=tmp_path / "a.doc"), capsys)
    assert "No such file" in refused(lambda: predict(graph=graph, plot=tmp_path / "nowhere" / "a.png"), capsys)


def test_no_inspectors_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["resnet56", "--setting", work.SETTING, "--inspectors"]
    assert "no such folder" in refused(lambda: main([*words, str(tmp_path / "nowhere")]), capsys)
    assert "it has none" in refused(lambda: main([*words, str(tmp_path)]), capsys)


def test_a_shelf_may_be_one_inspector(shelf: Path, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--inspectors", str(shelf / work.OTHER), "--setting", work.OTHER, "--graph", str(graph)]) == 0
    assert f"on {work.OTHER}" in capsys.readouterr().out


def test_an_inspector_under_the_name_of_another_is_refused(
    shelf: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cpu-p3w3-1g").symlink_to(shelf / work.SETTING)
    words = ["--inspectors", str(tmp_path), "--setting", "cpu-p3w3-1g", "--graph", str(graph)]
    assert f"its inspector is of {work.SETTING}" in refused(lambda: main(words), capsys)


def test_what_a_prediction_needs_and_what_help_needs() -> None:
    """Nothing heavy for help; neither pandas nor matplotlib nor dgl nor sklearn before an answer."""
    code = (
        "import sys; from driple.inspector import cli_predict\n"
        "heavy = {'numpy', 'torch', 'dgl', 'sklearn', 'pandas', 'matplotlib', 'pyarrow', 'igraph', 'tensorflow'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "with cli_predict._without('matplotlib', 'pandas'):\n"
        "    from driple.inspector.model import store\n"
        "    from driple.inspector.predict import graph_cache, predictor, request\n"
        "    from driple.pipeline.graph.public import read_graph, recipe_of\n"
        "    from pathlib import Path\n"
        "    recipe_of([graph := read_graph(Path(sys.argv[1]))], 'uniform:4').group(graph)\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import pandas; print(pandas.__name__)\n"
    )
    graph = work.run_graph(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code, str(graph)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['igraph', 'numpy', 'pyarrow', 'torch']", "pandas"]


def test_what_is_not_installed_is_named(
    predict: Predict, graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("predict.predictor", "training.threads"):
        monkeypatch.delitem(sys.modules, f"driple.inspector.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch is not installed: pip install 'driple[predict]'" in refused(lambda: predict(graph=graph), capsys)


def test_only_a_process_of_its_own_goes_without() -> None:
    before = list(sys.meta_path)
    with cli_predict._without("colorsys_of_nobody"):
        assert len(sys.meta_path) == len(before) + 1
    assert sys.meta_path == before
