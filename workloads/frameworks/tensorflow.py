"""TensorFlow: environment, imports and errors."""

from __future__ import annotations

import importlib
import os
import re

from driple.contracts.run_spec import JobSpec
from driple.workloads.frameworks.base import TrainingFramework
from driple.workloads.graphs.graph_writer import Graph


class TensorFlow(TrainingFramework):
    """TensorFlow 2 with tf_keras; parameter servers use its TensorFlow 1 graphs."""

    name = "tensorflow"
    packages = ("data", "frameworks", "graphs", "models", "strategies", "runtime")

    def prepare_environment(self, gpu: int | None) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if gpu is None else str(gpu)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only: each closed session logs a warning
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # else it loads Keras 3, too: a quarter of the start
        for name in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy"):
            # gRPC would send the traffic between tasks through the user's web proxy.
            os.environ.pop(name, None)
            os.environ.pop(name.upper(), None)

    def load(self) -> str:
        for name in ("tf_keras", "tensorflow.compat.v1"):
            importlib.import_module(name)
        import tensorflow as tf

        tf.compat.v1.train.Server, tf.compat.v1.ConfigProto  # noqa: B018  (lazy modules: load them here, not in each task)
        return str(tf.__version__)

    def load_for_graphs(self) -> None:
        self.prepare_environment(gpu=None)
        from driple.workloads.graphs import graph_build

        graph_build.use_tf1()

    def graph_of(self, job: JobSpec, task: str) -> Graph:
        import numpy as np
        import tf_keras

        from driple.workloads.graphs import graph_build, tensorflow_graph

        built = graph_build.build(job, int(task.partition(":")[2]), to_run=False)
        with np.errstate(over="raise"):  # TensorFlow's formulas use NumPy integers
            graph = tensorflow_graph.of_worker(built, job, task)
        tf_keras.backend.clear_session()  # it keeps names and tensors of every graph
        return graph

    def cause(self, error: Exception) -> str:
        text = str(getattr(error, "message", error))
        lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
        # Errors of other devices come under a heading. Of several, the line with OOM is the cause.
        telling = [line for line in lines if not re.match(r"From /job:|\d+ root error", line)] or lines
        return next((line for line in lines if "OOM" in line), telling[0] if telling else "no more is known")

    def is_expected(self, error: Exception) -> bool:
        import tensorflow as tf

        if isinstance(error, tf.errors.InvalidArgumentError | tf.errors.InternalError):
            return False  # the graph cannot run: a fault in our code or in the user's model, so show the traceback
        return isinstance(error, tf.errors.OpError | MemoryError) or self.is_of_library(error)

    def is_broken_image(self, error: Exception) -> bool:
        return "DecodeJpeg" in str(error)

    def is_out_of_memory(self, error: Exception) -> bool:
        return super().is_out_of_memory(error) or type(error).__name__ == "ResourceExhaustedError"
