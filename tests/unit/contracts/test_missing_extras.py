"""Every command in an installation without extras: one line that names the extra, exit code 2, and no files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from driple.contracts.command_guard import EXTRAS, missing_extra
from driple.contracts.errors import BadInput
from driple.contracts.manifest import SEALED, Manifest
from driple.contracts.run_spec import Measurement, RunSpec, Workload
from driple.contracts.setting import Setting

PROGRAM = """if True:
    import importlib, sys

    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in BLOCKED:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    BLOCKED = set(sys.argv[2].split(","))
    sys.meta_path.insert(0, Blocker())
    sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[3:]))
"""
ALL = ",".join(EXTRAS)
RUN = RunSpec(
    setting=Setting.parse("cpu-p0w1-1g"),
    workload=Workload("ncf", "movielens", 2, strategy="allreduce"),
    measurement=Measurement(steps=1),
    together=(("worker:0",),),
)
PREDICT = "--setting cpu-p2w2-1g resnet56 --batch-size 64 --inspectors {checkout}/inspectors"
GRAPH = "graph --model resnet20 --batch-size 2 --setting cpu-p1w1-1g --out g.parquet"


TRAIN = "--setting cpu-p1w2-1g --datasets {checkout}/datasets --output newt --epochs 1 --ensemble 1"
TO_TRAIN = ["sklearn", "scipy", "threadpoolctl", "safetensors", "igraph", "torch", "pyarrow", "numpy"]
BEYOND_PREDICT = ["pandas", "sklearn", "joblib", "matplotlib", "scipy", "threadpoolctl", "tensorboard", "dgl"]


def run_without(folder: Path, command: str, blocked: str, *argv: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PROGRAM, f"driple.{command}", blocked, *argv]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("command", "arguments", "blocked", "extra"),
    [
        ("pipeline.cli_metrics", "{data}/gpu.csv", ALL, "pipeline"),
        ("pipeline.cli_metrics", "{data}/gpu.csv", "numpy", "pipeline"),
        ("pipeline.cli_metrics", "{data}/gpu.csv --plot a.png", "matplotlib", "pipeline"),
        ("pipeline.cli_metrics", "{data}/gpu.csv --perfetto a.json --csv a.csv", "pandas", "pipeline"),
        ("pipeline.cli", "{data}", ALL, "pipeline"),
        ("pipeline.cli", "{data}", "pyarrow", "pipeline"),
        ("pipeline.cli", "{data} --engine dask://127.0.0.1:1", "dask,distributed", "dask"),
        ("pipeline.cli_report", "{data}", ALL, "pipeline"),
        ("inspector.cli_train", "--setting cpu-p2w2-1g --datasets {data}", ALL, "inspector"),
        ("inspector.cli_train", "--setting cpu-p2w2-1g --datasets {data}", "torch", "inspector"),
        ("inspector.cli_predict", PREDICT, ALL, "predict"),
        ("inspector.cli_predict", PREDICT, "torch", "predict"),
        ("orchestrator.cli", "{data}/e.yaml --done {data}", ALL, "pipeline"),
        ("workloads.cli", GRAPH, ALL, "workloads"),
        ("workloads.cli", GRAPH, "pyarrow", "workloads"),
        ("workloads.cli", f"{GRAPH} --framework torch --setting cpu-p0w2-1g", "torch", "workloads-torch"),
        ("workloads.cli", "graph --torch {data}/own.py:build --out g.parquet", "torch", "workloads-torch"),
        ("workloads.cli", "graph --onnx {data}/m.onnx --out g.parquet", "onnx", "onnx"),
        ("inspector.cli_predict", "--setting cpu-p0w2-1g --graph {data}/e.onnx", "onnx", "onnx"),
        ("workloads.cli", "calibrate --out times.json", "tensorflow", "workloads"),
        ("simulator.cli_calibrate", "--name mine", "tensorflow", "workloads"),
    ],
)
def test_a_missing_extra_is_one_line(
    tmp_path: Path, checkout: Path, command: str, arguments: str, blocked: str, extra: str
) -> None:
    data, folder = tmp_path / "data", tmp_path / "folder"
    data.mkdir()
    folder.mkdir()
    (data / "gpu.csv").write_text("time,value\n0,1\n1,0\n2,1\n3,0\n")
    (data / "cpu-p2w2-1g.parquet").write_bytes(b"")
    (data / "e.yaml").write_text("setting: cpu-p2w2-1g\nsteps: 1\nworkloads: [{model: ncf}]\n")
    (data / "e.onnx").write_bytes(b"")
    (data / "run").mkdir()
    Manifest(run=RUN, run_id=RUN.id, status=SEALED).write(data / "run" / "run.json")
    before = sorted(data.rglob("*"))
    done = run_without(folder, command, blocked, *arguments.format(data=data, checkout=checkout).split())
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1 and f"pip install 'driple[{extra}]'" in done.stderr
    assert list(folder.iterdir()) == [] and sorted(data.rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "arguments", "blocked", "package", "extra"),
    [
        ("inspector.cli_train", TRAIN, ",".join(BEYOND_PREDICT), "", "inspector"),
        *(("inspector.cli_train", TRAIN, name, name, "inspector") for name in TO_TRAIN),
        ("inspector.cli_train", f"{TRAIN} --tune 1", "optuna", "optuna", "tune"),
        ("inspector.cli_train", f"{TRAIN} --set machine.execution=dgl", "dgl", "DGL", "inspector"),
        ("inspector.cli_predict", PREDICT, "igraph", "igraph", "predict"),
        ("inspector.cli_predict", PREDICT, "safetensors", "safetensors", "predict"),
        ("inspector.cli_predict", f"{PREDICT} --fresh", "igraph", "igraph", "predict"),
        ("inspector.cli_predict", f"{PREDICT} --fresh", "torch", "torch", "predict"),
        ("inspector.cli_predict", f"{PREDICT} --plot a.png", "matplotlib", "matplotlib", "pipeline"),
        (
            "inspector.cli_predict",
            "--setting cpu-p1w2-1g --graph {checkout}/tests/data/graphs/tiny.pb",
            "google",
            "protobuf",
            "predict",
        ),
        *(
            ("pipeline.cli", f"{{runs}} --jobs {jobs}", name, name, "pipeline")
            for jobs in (1, 2)
            for name in ("igraph", "numpy", "pyarrow", "joblib")
        ),
        *(("pipeline.cli_report", "{runs}", name, name, "pipeline") for name in ("igraph", "numpy", "pyarrow")),
    ],
)
def test_a_module_that_is_there_and_cannot_be_imported_is_one_line(
    tmp_path: Path, checkout: Path, command: str, arguments: str, blocked: str, package: str, extra: str
) -> None:
    """With real data: nothing ends the work before a module is needed, and importlib finds the module."""
    folder, stubs, runs = (tmp_path / name for name in ("folder", "stubs", "runs"))
    folder.mkdir()
    for name in blocked.split(","):
        (stubs / name).mkdir(parents=True)
        (stubs / name / "__init__.py").write_text(f"raise ModuleNotFoundError('No module {name}', name='{name}')\n")
    shutil.copytree(checkout / "tests" / "data" / "runs", runs)
    before = sorted(runs.rglob("*"))
    program = f"import sys; from driple.{command} import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments.format(runs=runs, checkout=checkout).split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(stubs), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1 and f"pip install 'driple[{extra}]'" in done.stderr
    assert package in done.stderr
    assert list(folder.iterdir()) == [] and sorted(runs.rglob("*")) == before
    assert not (tmp_path / "driple").exists()


def test_to_frame_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from driple.inspector.predict.prediction import Predictions
    from driple.pipeline.bursts.trace_metrics import Metrics
    from driple.pipeline.datasets.build_report import BuildResult
    from driple.pipeline.traces.run_index import Runs

    monkeypatch.setitem(sys.modules, "pandas", None)
    for empty in (Predictions(()), Metrics(Path(), "", (), ()), BuildResult(), Runs((), ())):
        with pytest.raises(BadInput, match=r"to_frame needs pandas: pip install 'driple\[pipeline\]'"):
            empty.to_frame()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("orchestrator.cli", "--list-models"),
        ("orchestrator.cli_lab", "--help"),
        ("agents.cli", "--help"),
        *((f"pipeline.{name}", "--help") for name in ("cli", "cli_metrics", "cli_report")),
        *((f"inspector.{name}", "--help") for name in ("cli_train", "cli_predict")),
        ("workloads.cli", "models"),
    ],
)
def test_help_and_lists_need_no_extra(tmp_path: Path, command: str, arguments: str) -> None:
    done = run_without(tmp_path, command, ALL, *arguments.split())
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


def test_a_module_that_no_extra_installs_is_a_bug() -> None:
    assert missing_extra(ModuleNotFoundError("x", name="driple.pipeline.nothing")) is None
    assert missing_extra(ModuleNotFoundError("x")) is None
