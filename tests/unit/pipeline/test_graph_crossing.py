"""Bytes that cross between a worker and the other tasks of its job: by hand, and against real traffic."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from driple.pipeline.graph.public import read_graph

PS, WORKER = '"/job:ps/task:0"', '"/job:worker/task:0"'


def node(name: str, op: str, device: str, *inputs: str, shapes: tuple[tuple[int, ...], ...] = ((1,),)) -> str:
    taken = "".join(f' input: "{text}"' for text in inputs)
    dims = "".join(" shape {" + "".join(f" dim {{ size: {size} }}" for size in shape) + " }" for shape in shapes)
    known = f'attr {{ key: "_output_shapes" value {{ list {{{dims} }} }} }}'
    kind = 'attr { key: "T" value { type: DT_FLOAT } } attr { key: "dtype" value { type: DT_FLOAT } }'
    return f'node {{ name: "{name}" op: "{op}" device: {device}{taken} {kind} {known} }}\n'


def crossing(tmp_path: Path, *nodes: str) -> tuple[float, float, float]:
    path = tmp_path / "graph.pbtxt"
    path.write_text("".join(nodes))
    found = read_graph(path)
    return found.bytes_received, found.bytes_sent, found.bytes_busiest


def test_a_tensor_that_two_ops_take_comes_once(tmp_path: Path) -> None:
    found = crossing(
        tmp_path,
        node("w", "VariableV2", PS, shapes=((100,),)),
        node("read", "Identity", PS, "w", shapes=((100,),)),
        node("a", "Relu", WORKER, "read", shapes=((100,),)),
        node("b", "AddV2", WORKER, "read", "a", shapes=((100,),)),
        node("up", "AssignAdd", PS, "w", "b", shapes=((100,),)),
    )
    assert found == (400.0, 400.0, 400.0)


def test_the_server_that_gives_most_is_told_apart(tmp_path: Path) -> None:
    other = PS.replace("task:0", "task:1")
    found = crossing(
        tmp_path,
        node("large", "VariableV2", PS, shapes=((100,),)),
        node("small", "VariableV2", other, shapes=((20,),)),
        node("also", "VariableV2", other, shapes=((30,),)),
        node("a", "AddV2", WORKER, "large", "small", shapes=((100,),)),
        node("b", "AddV2", WORKER, "a", "also", shapes=((100,),)),
        node("up", "AssignAdd", PS, "large", "b", shapes=((100,),)),
    )
    assert found == (600.0, 400.0, 400.0)


def test_of_an_op_with_several_outputs_only_what_crosses_counts(tmp_path: Path) -> None:
    found = crossing(
        tmp_path,
        node("x", "Relu", WORKER, shapes=((10,),)),
        node("cut", "Split", WORKER, "x", "x", shapes=((1000,), (5,))),
        node("y", "Relu", WORKER, "cut", shapes=((1000,),)),
        node("up", "Relu", PS, "cut:1", shapes=((5,),)),
    )
    assert found == (0.0, 20.0, 0.0)


def test_a_graph_without_variables_says_nothing(tmp_path: Path) -> None:
    found = crossing(tmp_path, node("x", "Relu", '""'), node("y", "Relu", '""', "x"))
    assert all(map(math.isnan, found))


def test_of_a_graph_for_one_machine_it_is_the_variables_that_a_step_reads_and_updates(tmp_path: Path) -> None:
    found = crossing(
        tmp_path,
        node("w", "VariableV2", '""', shapes=((100,),)),
        node("read", "Identity", '""', "w", shapes=((100,),)),
        node("fixed", "VariableV2", '""', shapes=((10,),)),
        node("fixed/read", "Identity", '""', "fixed", shapes=((10,),)),
        node("slot", "VariableV2", '""', shapes=((100,),)),  # read by the update alone
        node("y", "AddV2", '""', "read", "fixed/read", shapes=((100,),)),
        node("update", "ApplyMomentum", '""', "w", "slot", "y", shapes=((100,),)),
    )
    assert found == (440.0, 400.0, 440.0)


def test_what_a_collective_puts_out_counts_both_ways(tmp_path: Path) -> None:
    found = crossing(
        tmp_path,
        node("x", "Relu", WORKER, shapes=((50,),)),
        node("sum", "CollectiveReduceV2", WORKER, "x", shapes=((50,),)),
    )
    assert found == (200.0, 200.0, 200.0)


@pytest.mark.parametrize("name", ["lenet", "nmt_small", "resnet20"])
def test_real_workers_moved_what_their_graph_says(checkout: Path, name: str) -> None:
    """The wire has 0.3 to 4.1 % more than the tensors: headers, and messages about small ones."""
    (run,) = (checkout / "tests/data/runs").glob(f"*-{name}-*")
    graph = read_graph(run / "graph/worker.parquet")
    ends = pq.read_table(run / "steps/worker-0.parquet")["end_mono_ns"].to_numpy()
    trace = pq.read_table(run / "trace/worker-0.parquet")
    times = trace["t_mono_ns"].to_numpy()
    for column, said in (("nic_rx_bytes", graph.bytes_received), ("nic_tx_bytes", graph.bytes_sent)):
        counter = trace[column].to_numpy()
        first, last = np.interp([ends[3], ends[-1]], times, counter)
        assert (last - first) / (len(ends) - 4) / said == pytest.approx(1.02, abs=0.04)
