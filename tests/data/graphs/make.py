"""Makes the graph files beside it, with TensorFlow: `python tests/data/graphs/make.py`.

tiny.pb, tiny.pbtxt, tiny.parquet    a training graph on a worker's GPU and a parameter server; the same in three forms
bare.pb                              the same as `tf.io.write_graph` leaves it: without shapes
loop.pb                              a training graph with a while loop of TensorFlow 1, whose edges go round
calls.pb                             the same loop as TensorFlow 2 has it: in functions
"""

from __future__ import annotations

from pathlib import Path

import tensorflow.compat.v1 as v1
from google.protobuf import text_format

from driple.workloads.graphs import graph_writer, tensorflow_graph

HERE = Path(__file__).parent
BATCH = 8


def tiny() -> v1.Graph:
    graph = v1.Graph()
    setter = v1.train.replica_device_setter(
        ps_tasks=1,
        ps_device="/job:ps/replica:0/device:CPU:0",
        worker_device="/job:worker/replica:0/task:0/device:GPU:0",
    )
    with graph.as_default(), v1.device(setter):
        with v1.device("/job:worker/replica:0/task:0/device:CPU:0"):
            images, labels = v1.random.uniform([BATCH, 12, 12, 3]), v1.zeros([BATCH], v1.int32)
        kernel = v1.get_variable("kernel", [3, 3, 3, 4], use_resource=False)
        flat = v1.get_variable("flat", [144, 10], use_resource=False)
        bias = v1.get_variable("bias", [10], use_resource=False, initializer=v1.zeros_initializer())
        hidden = v1.nn.max_pool2d(v1.nn.relu(v1.nn.conv2d(images, kernel, 1, "SAME")), 2, 2, "SAME")
        logits = v1.nn.bias_add(v1.matmul(v1.reshape(hidden, [BATCH, -1]), flat), bias)
        loss = v1.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
    return graph


def loop(control_flow_v2: bool) -> v1.Graph:
    (v1.enable_control_flow_v2 if control_flow_v2 else v1.disable_control_flow_v2)()
    graph = v1.Graph()
    with graph.as_default():
        weight = v1.get_variable("weight", [4, 4], use_resource=False)
        state = v1.ones([BATCH, 4])
        _, last = v1.while_loop(
            lambda step, _: step < 3, lambda step, x: (step + 1, v1.tanh(v1.matmul(x, weight))), (0, state)
        )
        v1.train.GradientDescentOptimizer(0.1).minimize(v1.reduce_sum(last), name="train")
    return graph


def definition(graph: v1.Graph, shapes: bool = True) -> v1.GraphDef:
    return v1.graph_util.extract_sub_graph(graph.as_graph_def(add_shapes=shapes), ["train"])


def main() -> None:
    v1.disable_v2_behavior()
    graph = tiny()
    (HERE / "tiny.pb").write_bytes(definition(graph).SerializeToString(deterministic=True))
    (HERE / "tiny.pbtxt").write_text(text_format.MessageToString(definition(graph)))
    (HERE / "bare.pb").write_bytes(definition(graph, shapes=False).SerializeToString(deterministic=True))
    graph_writer.write(tensorflow_graph.of_graphdef(HERE / "tiny.pb"), HERE / "tiny.parquet")
    (HERE / "loop.pb").write_bytes(definition(loop(False)).SerializeToString(deterministic=True))
    (HERE / "calls.pb").write_bytes(definition(loop(True)).SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
