"""Graph files: what is read from them, and what is said of bad ones."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driple.contracts.errors import BadInput
from driple.pipeline.graph import graphdef_proto
from driple.pipeline.graph.function_inlining import inline_functions
from driple.pipeline.graph.public import OpGraph, read_graph
from driple.pipeline.graph.shape_inference import output_shapes

BATCH = 8

LOCAL = 'device: "/job:localhost/replica:0/task:0/device:CPU:0"'


@pytest.fixture(scope="module")
def graphs(checkout: Path) -> Path:
    return checkout / "tests/data/graphs"


def same(one: OpGraph, other: OpGraph) -> bool:
    return (
        one.ops == other.ops
        and np.array_equal(one.bytes, other.bytes)
        and np.array_equal(one.edges, other.edges)
        and (one.unsized, one.left_out) == (other.unsized, other.left_out)
    )


def test_the_three_forms_of_a_graph_say_the_same(graphs: Path) -> None:
    parquet, binary, text = (read_graph(graphs / f"tiny.{form}") for form in ("parquet", "pb", "pbtxt"))
    assert same(parquet, binary)
    assert same(binary, text)
    assert np.array_equal(binary.flops, text.flops, equal_nan=True)
    # A GraphDef has none: ours, by formulas for nearly all of them, equal those that TensorFlow counted.
    both = ~np.isnan(binary.flops)
    assert np.array_equal(binary.flops[both], parquet.flops[both])
    assert np.nansum(binary.flops) > 0.98 * np.nansum(parquet.flops)
    # 12 x 12 outputs of 3 x 3 x 3 multiply-adds, 4 channels, and two FLOPs for each
    assert parquet.flops[parquet.ops.index("Conv2D")] == 2 * BATCH * 12 * 12 * 3 * 3 * 3 * 4


def test_a_worker_is_the_ops_of_its_gpu_that_hang_together_by_data(graphs: Path) -> None:
    graph = read_graph(graphs / "tiny.pb")
    counts = Counter(graph.ops)
    assert counts["Conv2D"] == counts["Conv2DBackpropFilter"] == counts["MatMul"] - 2 == 1
    assert "VariableV2" not in counts  # they are on the server
    assert "RandomUniform" not in counts  # it is on the worker's CPU
    assert "NoOp" not in counts  # it has control edges alone
    assert graph.left_out > 0
    assert graph.bytes[graph.ops.index("Conv2D")] == BATCH * 12 * 12 * 4 * 4
    assert graph.bytes[graph.ops.index("MaxPool")] == BATCH * 6 * 6 * 4 * 4
    assert graph.edges.dtype == np.int64
    assert graph.bytes.dtype == graph.flops.dtype == np.float64
    assert (graph.edges[:, 0] != graph.edges[:, 1]).all()
    assert len({tuple(edge) for edge in graph.edges.tolist()}) == len(graph.edges)
    conv, relu = graph.ops.index("Conv2D"), graph.ops.index("Relu")
    assert [conv, relu] in graph.edges.tolist()


@pytest.mark.parametrize("device", ["ps:0", "ps", "/job:ps/task:0", "/job:ps/replica:0/task:0/device:CPU:0"])
def test_another_device_can_be_asked_for(graphs: Path, device: str) -> None:
    assert "VariableV2" in read_graph(graphs / "tiny.pb", device=device).ops


def test_parts_of_a_device_name(graphs: Path) -> None:
    assert "RandomUniform" in read_graph(graphs / "tiny.pb", device="/job:worker/device:CPU:0").ops
    assert same(read_graph(graphs / "tiny.pb", device="GPU"), read_graph(graphs / "tiny.pb"))


@pytest.mark.parametrize(
    ("device", "said"),
    [("worker:7", "no op is on 'worker:7' (devices: /job:ps"), ("TPU", "no op is on"), ("/nonsense", "not a device")],
)
def test_a_device_that_is_not_there(graphs: Path, device: str, said: str) -> None:
    with pytest.raises(BadInput, match="tiny.pb: ") as caught:
        read_graph(graphs / "tiny.pb", device=device)
    assert said in str(caught.value)


def test_a_while_loop_goes_round_and_counts_once(graphs: Path) -> None:
    graph = read_graph(graphs / "loop.pb")
    counts = Counter(graph.ops)
    assert counts["NextIteration"] >= 2
    assert counts["Tanh"] == 1
    merges = {position for position, op in enumerate(graph.ops) if op == "Merge"}
    back = [edge for edge in graph.edges.tolist() if graph.ops[edge[0]] == "NextIteration"]
    assert back
    assert all(dst in merges for _, dst in back)


def test_called_functions_are_laid_open(graphs: Path) -> None:
    counts = Counter(read_graph(graphs / "calls.pb").ops)
    assert counts["StatelessWhile"] == 2  # forward and backward
    assert counts["Tanh"] == counts["TanhGrad"] == 1  # of the bodies
    assert counts["MatMul"] == 3
    assert counts["Less"] == 2  # of the conditions


def node(name: str, op: str = "Relu", inputs: tuple[str, ...] = (), more: str = "") -> str:
    lines = "".join(f' input: "{text}"' for text in inputs)
    return f'node {{ name: "{name}" op: "{op}"{lines} {more} attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}\n'


def shape(*sizes: int) -> str:
    dims = " ".join(f"dim {{ size: {size} }}" for size in sizes)
    return f'attr {{ key: "_output_shapes" value {{ list {{ shape {{ {dims} }} }} }} }}'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "g.pbtxt"
    path.write_text(text, encoding="utf-8")
    return path


def test_control_edges_do_not_count_and_outputs_are_edges_from_their_op(tmp_path: Path) -> None:
    text = node("a") + node("b", "Split", ("a",)) + node("c", "Add", ("b:1", "b", "^a")) + node("d", "NoOp", ("^c",))
    graph = read_graph(written(tmp_path, text))
    assert graph.ops == ("Relu", "Split", "Add")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]  # b to c twice is one edge
    assert graph.left_out == 1


def test_shapes_that_a_file_leaves_out_are_worked_out(graphs: Path) -> None:
    assert same(read_graph(graphs / "bare.pb"), read_graph(graphs / "tiny.pb"))


INTS = """node { name: "%s" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value {
    tensor { dtype: DT_INT32 tensor_shape { dim { size: %d } } %s } } } }
"""


def ints(name: str, *values: int) -> str:
    return INTS % (name, len(values), " ".join(f"int_val: {value}" for value in values))


def number(key: str, value: int) -> str:
    return f'attr {{ key: "{key}" value {{ i: {value} }} }}'


@pytest.mark.parametrize(
    ("op", "inputs", "more", "expected"),
    [
        ("Reshape", ("x", "to"), "", [2, 30]),
        ("Transpose", ("x", "order"), "", [5, 3, 4]),
        ("Sum", ("x", "first"), "", [4, 5]),
        ("Sum", ("x", "first"), 'attr { key: "keep_dims" value { b: true } }', [1, 4, 5]),
        ("Tile", ("x", "order"), "", [6, 0, 5]),
        ("Pack", ("x", "x"), number("axis", -1), [3, 4, 5, 2]),
        ("ConcatV2", ("x", "x", "first"), "", [6, 4, 5]),
        ("StridedSlice", ("x", "b", "e", "s"), number("begin_mask", 1) + number("shrink_axis_mask", 2), [2, 5]),
        ("StridedSlice", ("x", "b", "e", "s"), number("ellipsis_mask", 1) + number("new_axis_mask", 2), [3, 4, 5, 1]),
        ("GatherV2", ("x", "to", "first"), "", [2, 4, 5]),
        ("BatchMatMulV2", ("x", "x"), 'attr { key: "adj_y" value { b: true } }', [3, 4, 4]),
        ("Mul", ("x", "y"), "", [3, 4, 5]),
    ],
)
def test_the_rules_of_shapes(op: str, inputs: tuple[str, ...], more: str, expected: list[int]) -> None:
    given = 'attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { %s } } }'
    text = node("x", "Placeholder", more=given % "dim { size: 3 } dim { size: 4 } dim { size: 5 }")
    text += node("y", "Placeholder", more=given % "dim { size: 1 } dim { size: 5 }")
    text += ints("to", 2, -1) + ints("order", 2, 0, 1) + ints("first", 0)
    text += ints("b", 1, 1) + ints("e", 2, 2) + ints("s", 1, 1) + node("z", op, inputs, more)
    nodes = inline_functions(graphdef_proto.parse(text.encode(), text=True))
    assert output_shapes(nodes, {item.name: position for position, item in enumerate(nodes)})[-1] == [expected]


def test_an_op_without_a_rule_has_no_size_and_is_counted(tmp_path: Path) -> None:
    graph = read_graph(written(tmp_path, node("a", "Mystery") + node("b", "Relu", ("a",))))
    assert (graph.bytes.tolist(), graph.unsized) == ([0, 0], 2)


def test_no_file_makes_us_work_without_end(tmp_path: Path) -> None:
    text = ints("n0", 3, 5) + node("u", "Unpack", ("n0",), number("num", 2**40))
    for step in range(1, 60):  # each twice as long, or of twice as many digits, as the one before
        text += node(f"n{step}", "ConcatV2" if step < 30 else "Mul", (f"n{step - 1}",) * 2 + ("zero",) * (step < 30))
    assert len(read_graph(written(tmp_path, text + ints("zero", 0))).ops) > 60


def test_names_do_not_matter(tmp_path: Path, graphs: Path) -> None:
    text = (graphs / "tiny.pbtxt").read_text()
    assert same(read_graph(written(tmp_path, text.replace("gradients/", "zz/9_"))), read_graph(graphs / "tiny.pb"))


@pytest.mark.parametrize(
    ("sizes", "batch_size", "expected"),
    [((2, 3), None, 24), ((-1, 3), None, 12), ((-1, 3), 16, 192), ((5, -1), 16, 20), ((), None, 4), ((0, 9), 4, 0)],
)
def test_an_unknown_first_dimension_is_the_batch(
    tmp_path: Path, sizes: tuple[int, ...], batch_size: int | None, expected: float
) -> None:
    graph = read_graph(written(tmp_path, node("a", more=shape(*sizes))), batch_size=batch_size)
    assert graph.bytes.tolist() == [expected]
    assert graph.unsized == int(-1 in sizes)


def test_a_file_without_jobs_is_all_the_workers(tmp_path: Path) -> None:
    assert len(read_graph(written(tmp_path, node("a") + node("b", inputs=("a",)))).ops) == 2


def test_a_function_that_places_its_updates_alone_is_all_the_workers(tmp_path: Path) -> None:
    text = node("x") + node("mul", "Mul", ("x",)) + node("update", "AssignSubVariableOp", ("mul",), LOCAL)
    assert read_graph(written(tmp_path, text)).ops == ("Relu", "Mul", "AssignSubVariableOp")


def test_ops_that_name_no_job_are_not_another_tasks(tmp_path: Path) -> None:
    text = node("v", "VariableV2", more='device: "/job:ps/task:0"') + node("a") + node("b", "Mul", ("a",))
    assert read_graph(written(tmp_path, text)).ops == ("Relu", "Mul")
    assert read_graph(written(tmp_path, text), device="ps").ops == ("VariableV2",)


def test_ops_without_a_device_are_with_their_colocation_group_or_first_input(tmp_path: Path) -> None:
    place = 'attr { key: "_class" value { list { s: "loc:@v" } } }'
    text = (
        node("v", "VariableV2", more='device: "/job:ps/task:0"')
        + node("x", more='device: "/job:worker/task:0"')
        + node("read", "Identity", ("v",))
        + node("grad", "Mul", ("x",))
        + node("apply", "ApplyMomentum", ("grad",), place)
    )
    assert read_graph(written(tmp_path, text)).ops == ("Relu", "Mul")
    assert read_graph(written(tmp_path, text), device="ps").ops == ("VariableV2", "Identity")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a GraphDef, or one without nodes"),
        ("versions { producer: 1 }", "one without nodes"),
        (node("a")[:-5], 'Expected "}"'),
        ("hello", "line 1: "),
        ("node: 3", "line 1: 'node: 3': Expected \"{\""),
        (node("a") + node("a"), "two nodes of the name 'a'"),
        (node("a", inputs=("b",)), "has the input 'b', which is not in the graph"),
        (node("a", inputs=("a",)), "op 'a' depends on itself"),
        (node("a", inputs=("b",)) + node("b", inputs=("a",)), "op 'a' depends on itself"),
        ('node { name: "a" }', "a node without an op: 'a'"),
        ('node { op: "a" }', "a node without a name"),
        (node("a", more='device: "/job:ps/task:0"'), "no op is on 'a worker' (devices: /job:ps/task:0)"),
        ("node { x { " + "y { " * 1000, "nested too deeply"),
        (node("a", more=shape(2**40, 2**40)), "more bytes than any machine has"),
        ('node { name: "\\377" }', "parse string"),
    ],
)
def test_bad_text_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        read_graph(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    call = 'node{} {{ name: "c" op: "PartitionedCall" attr {{ key: "f" value {{ func {{ name: "again" }} }} }} }}'
    body = f'library {{ function {{ signature {{ name: "again" }} {call.format("_def")} }} }}'
    with pytest.raises(BadInput, match="calls itself"):
        read_graph(written(tmp_path, call.format("") + body))


def test_text_as_tools_write_it(tmp_path: Path) -> None:
    text = """# a comment
    node: < name: 'a' "b" op: "Relu\\x41" ; unknown_field: [1, 2, inf] other { deep: [ {x: -1.5e3f}, {} ] } >,
    node { name: "c" op: "Re\\154u" input: ["ab"] }
    """
    graph = read_graph(written(tmp_path, text))
    assert graph.ops == ("ReluA", "Relu")
    assert graph.edges.tolist() == [[0, 1]]


def test_a_graphdef_without_protobuf_is_a_module_not_found(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphdef_proto.message_class.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ModuleNotFoundError, match="protobuf"):
        read_graph(graphs / "tiny.pb")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "no.pb", "no such file"), (tmp_path, "a folder")):
        with pytest.raises(BadInput, match=said):
            read_graph(path)


@pytest.mark.parametrize("form", ["pb", "pbtxt", "parquet"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_short_or_overwritten_never_gives_more_than_one_line(
    tmp_path: Path, graphs: Path, form: str, data: st.DataObject
) -> None:
    content = bytearray((graphs / f"tiny.{form}").read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"broken.{form}"
    path.write_bytes(bytes(content))
    try:
        graph = read_graph(path)
    except BadInput as error:
        assert "\n" not in str(error)
    else:
        assert len(graph.ops) >= 1


@given(st.binary(max_size=200))
def test_any_bytes_are_a_graph_or_bad_input(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pb"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        read_graph(path)


def test_a_parquet_file_of_something_else(tmp_path: Path, graphs: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pq.read_table(graphs / "tiny.parquet")
    versions = {b"driple.schema": b"graph", b"driple.schema_version": b"99"}
    (row,) = table.to_pylist()
    row["nodes"][0]["device"] = None
    for other, said in (
        (pa.table({"a": [1]}), "a Parquet file, but not of a graph"),
        (table.replace_schema_metadata(versions), "schema version .99."),
        (pa.concat_tables([table, table]), "2 graphs in a file that should have one"),
        (table.slice(0, 0), "0 graphs"),
        (table.drop_columns(["edges"]), "lacks columns"),
        (pa.Table.from_pylist([row], schema=table.schema), "values of the wrong type"),
    ):
        pq.write_table(other, path)
        with pytest.raises(BadInput, match=said):
            read_graph(path)
