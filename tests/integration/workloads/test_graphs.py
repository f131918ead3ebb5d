"""Graphs: what is extracted is what runs, with devices of the setting, readable without TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from local_jobs import COMMAND, MakeFolder, WarmHost, make_job
from small_graphs import workload

from driple.workloads.graphs import graph_build, tensorflow_graph

pytestmark = [pytest.mark.tf, pytest.mark.integration]


def graph_command(*arguments: object, code: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [*COMMAND, "graph", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=110, **more
    )
    assert result.returncode == code, result.stderr
    return result


def read(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = pq.read_table(path).to_pylist()[0]
    return row


EXTRACT = """
import sys
from driple.workloads.cli import main
for update in ("sync", "async"):
    command = "graph --model resnet20 --batch-size 8 --width 0.25 --setting cpu-p2w1-1g --update".split()
    assert main([*command, update, "--out", f"{sys.argv[1]}/{update}.parquet"]) == 0
"""


def test_the_graph_that_was_extracted_is_the_graph_that_ran(warm: WarmHost, folder: MakeFolder, tmp_path: Path) -> None:
    for update in ("sync", "async"):
        job = folder(make_job("cpu-p2w1-1g", "resnet20", update=update, steps=1))
        servers = warm.start(job, ["ps:0", "ps:1"])
        worker = warm.start(job, ["worker:0"], graph=str(tmp_path / f"{update}-ran.parquet"))
        assert set(warm.wait({**servers, **worker}).values()) == {0}
    subprocess.run([sys.executable, "-c", EXTRACT, str(tmp_path)], check=True, timeout=110, capture_output=True)
    for update in ("sync", "async"):
        assert read(tmp_path / f"{update}-ran.parquet") == read(tmp_path / f"{update}.parquet")
    assert len(read(tmp_path / "sync.parquet")["nodes"]) > len(read(tmp_path / "async.parquet")["nodes"])


OWN = """
import tf_keras

def tiny(image, *, classes, width):
    x = tf_keras.layers.Conv2D(int(16 * width), 3)(image)
    return tf_keras.layers.Dense(classes)(tf_keras.layers.Flatten()(x))

def by_hand(image, *, classes, width):
    import tensorflow as tf
    import tensorflow.compat.v1 as v1

    flat = v1.reshape(image, [image.shape[0], -1])
    first = v1.get_variable("first", [flat.shape[1], classes], initializer=v1.initializers.glorot_normal())
    second = v1.Variable(v1.zeros([classes]), name="second")
    third = v1.Variable(lambda: v1.random.normal([classes]), name="third")
    fourth = tf.Variable(tf.random.normal([classes]), name="fourth")
    return flat @ first + second * third + fourth
"""


@pytest.mark.parametrize(
    ("model", "optimiser", "update"),
    [
        ("mobilenet", "rmsprop", "sync"),
        ("nmt_small", "adam", "async"),
        ("ncf", "sgd", "async"),
        ("OWN:by_hand", "momentum", "sync"),
        ("OWN:by_hand", "adam", "async"),
        ("OWN:by_hand", "rmsprop", "sync"),
    ],
)
def test_the_graph_is_the_same_without_the_first_values_of_its_weights(
    model: str, optimiser: str, update: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = {"dataset": "cifar10"} if model.startswith("OWN") else {}
    work = workload(model.replace("OWN", str(tmp_path / "own.py")), optimiser=optimiser, update=update, **own)
    job = make_job("cpu-p2w2-1g")
    job = replace(job, run=replace(job.run, workload=work))
    graph_build.use_tf1()
    to_run, to_look_at = graph_build.build(job, 0), graph_build.build(job, 0, to_run=False)
    dumped = [tensorflow_graph.of_worker(built, job, "worker:0") for built in (to_run, to_look_at)]
    assert dumped[0] == dumped[1]
    made = [len(built.graph.get_operations()) for built in (to_run, to_look_at)]
    assert made[1] < 0.95 * made[0]


def test_several_models_in_parallel_for_a_gpu_setting(tmp_path: Path) -> None:
    said = graph_command(
        "--model",
        "resnet20",
        "trivial",
        "--batch-size",
        32,
        "--setting",
        "v100-p2w2-40g",
        "--jobs",
        2,
        "--out",
        tmp_path,
    ).stdout
    assert "[1/2] resnet20: " in said and "[2/2] trivial: " in said and "MB resident" in said
    graph = read(tmp_path / "resnet20.parquet")
    nodes, edges = graph["nodes"], graph["edges"]
    assert json.loads(graph["workload"])["batch_size"] == 32
    devices = {node["device"] for node in nodes}
    assert "/job:worker/replica:0/task:0/device:GPU:0" in devices
    assert {f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in (0, 1)} <= devices
    ops = {node["op"] for node in nodes}
    # Forward, backward, apply, and in sync mode what makes it so.
    assert {"Conv2D", "Conv2DBackpropFilter", "VariableV2", "ApplyMomentum", "ResourceApplyMomentum"} & ops >= {
        "Conv2D",
        "Conv2DBackpropFilter",
        "VariableV2",
        "ApplyMomentum",
    }
    assert "QueueDequeueV2" in ops
    convolutions = [node for node in nodes if node["op"] == "Conv2D"]
    assert convolutions[0]["shapes"] == [[32, 32, 32, 16]]
    assert convolutions[0]["output_bytes"] == 32 * 32 * 32 * 16 * 4
    assert convolutions[0]["flops"] == 2 * 32 * 32 * 32 * 16 * 3 * 3 * 3
    # Published: 40.8 million multiply-adds an image forward; backward is twice that, but for the first layer's input.
    flops = sum(node["flops"] or 0 for node in nodes if node["op"].startswith(("Conv2D", "MatMul")))
    assert flops == pytest.approx(3 * 2 * 40.8e6 * 32, rel=0.02)
    assert any(node["flops"] is None for node in nodes)
    assert {edge["kind"] for edge in edges} == {"data", "control"}
    assert all(0 <= edge["src"] < len(nodes) and 0 <= edge["dst"] < len(nodes) for edge in edges)
    by_name = {node["name"]: index for index, node in enumerate(nodes)}
    assert any(edge["dst"] == by_name[convolutions[0]["name"]] for edge in edges)


def test_numbers_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    large = ["--batch-size", 2**24, "--size", 4096, "--width", 64]
    said = graph_command("--model", "vgg11", *large, "--out", tmp_path / "g.parquet", code=2).stderr
    assert said.startswith("vgg11: bytes or FLOPs of an op do not fit 64 bits") and len(said.splitlines()) == 1


def test_a_graph_is_read_without_tensorflow(tmp_path: Path) -> None:
    out = tmp_path / "g.parquet"
    graph_command(
        "--model", "trivial", "--size", 8, "--setting", "cpu-p2w2-1g", "--sharding", "round_robin", "--out", out
    )
    program = (
        "import sys, pyarrow.parquet as pq\n"
        f"table = pq.read_table({str(out)!r})\n"
        "graph = table.to_pylist()[0]\n"
        "assert table.schema.metadata[b'driple.schema_version'] == b'1'\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(len(graph['nodes']), graph['setting'])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.endswith("cpu-p2w2-1g\n")


WITH_GRAPHDEFS = """
import sys, tensorflow.compat.v1 as v1
from driple.workloads.cli import main
folder = sys.argv[1]
with v1.Graph().as_default() as graph:
    x = v1.placeholder(v1.float32, [None, 3], name="x")
    with v1.device("/job:worker/task:0/device:GPU:0"):
        y = v1.matmul(x, v1.ones([3, 2]), name="y")
    first, second = v1.split(y, 2, axis=1, name="parts")
    v1.identity(second, name="second")
    v1.as_string(y, name="words")
for name in ("g.pb", "g.pbtxt"):
    v1.train.write_graph(graph, folder, name, as_text=name == "g.pbtxt")
    assert main(["graph", "--graphdef", f"{folder}/{name}", "--out", f"{folder}/{name}.parquet"]) == 0
    whole = open(f"{folder}/{name}", "rb").read()
    with open(f"{folder}/broken-{name}", "wb") as stream:
        stream.write(whole[:-7] + b"\\xff\\xff")
    assert main(["graph", "--graphdef", f"{folder}/broken-{name}", "--out", f"{folder}/none.parquet"]) == 2
alien = graph.as_graph_def()
alien.node[-1].op = "Alien"
v1.train.write_graph(alien, folder, "alien.pb", as_text=False)
assert main(["graph", "--graphdef", f"{folder}/alien.pb", "--out", f"{folder}/none.parquet"]) == 2
"""


def test_a_graphdef_of_the_users_own_and_broken_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITH_GRAPHDEFS, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert result.returncode == 0, result.stderr
    words = [line for line in result.stderr.splitlines() if line.startswith(str(tmp_path))]
    assert [word.partition(":")[0] for word in words] == [
        str(tmp_path / name) for name in ("broken-g.pb", "broken-g.pbtxt", "alien.pb")
    ]
    assert not (tmp_path / "none.parquet").exists()
    binary, text = read(tmp_path / "g.pb.parquet"), read(tmp_path / "g.pbtxt.parquet")
    assert binary["nodes"] == text["nodes"] and binary["edges"] == text["edges"]
    (matmul,) = [node for node in binary["nodes"] if node["op"] == "MatMul"]
    assert matmul["shapes"] == [[-1, 2]] and matmul["output_bytes"] is None
    assert matmul["device"] == "/job:worker/task:0/device:GPU:0"
    names = [node["name"] for node in binary["nodes"]]
    (edge,) = [edge for edge in binary["edges"] if edge["dst"] == names.index("second")]
    assert (names[edge["src"]], edge["output"], edge["kind"]) == ("parts", 1, "data")
    assert binary["nodes"][names.index("words")]["output_bytes"] is None


def test_a_model_of_the_users_own_is_a_workload_like_any_other(tmp_path: Path) -> None:
    names = ["own.py:tiny", "own.py:by_hand", "inner/own.py:tiny", f"{tmp_path}/inner/own.py:by_hand"]
    (tmp_path / "inner").mkdir()
    for file in ("own.py", "inner/own.py"):
        (tmp_path / file).write_text(OWN)
    out = tmp_path / "graphs"
    graph_command("--model", *names, "--dataset", "cifar10", "--width", 0.5, "--out", out, cwd=tmp_path)
    files = {path.relative_to(tmp_path): read(path) for path in tmp_path.rglob("*.parquet")}
    assert {str(file): json.loads(graph["workload"])["model"] for file, graph in files.items()} == {
        "graphs/own-tiny.parquet": names[0],
        "graphs/own-by_hand.parquet": names[1],
        "graphs/own-tiny-2.parquet": names[2],
        "graphs/own-by_hand-2.parquet": names[3],
    }
    nodes = read(out / "own-tiny.parquet")["nodes"]
    assert {"Conv2D", "MatMul", "ApplyMomentum"} <= {node["op"] for node in nodes}
    assert [node["shapes"] for node in nodes if node["op"] == "Conv2D"] == [[[32, 30, 30, 8]]]
