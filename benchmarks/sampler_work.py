"""Training steps on every core, to keep a machine busy and to see how much a sampler slows them."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

_WORK_TAIL = """
import mmap, os, struct, sys
page = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
count = 0
while True:
    step()
    count += 1
    page[:8] = struct.pack("q", count)
"""
WORK = {
    "TensorFlow": """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
layers = [tf.Variable(tf.random.normal((256, 256), stddev=0.05)) for _ in range(4)]
images, labels = tf.random.normal((64, 256)), tf.random.normal((64, 256))
@tf.function
def train():
    with tf.GradientTape() as tape:
        out = images
        for layer in layers:
            out = tf.nn.relu(out @ layer)
        loss = tf.reduce_mean((out - labels) ** 2)
    for layer, slope in zip(layers, tape.gradient(loss, layers)):
        layer.assign_sub(0.01 * slope)
    return loss
def step():
    train().numpy()
""",
    "numpy": """
import os
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy
left, right = numpy.random.rand(256, 256), numpy.random.rand(256, 256)
def step():
    left @ right
""",
    "plain Python": """
left = [[float(i * j % 7) for j in range(24)] for i in range(24)]
def step():
    [[sum(a * b for a, b in zip(row, column)) for column in zip(*left)] for row in left]
""",
}


def work_kind(python: str) -> str:
    """The nearest to a TensorFlow step that an interpreter has."""
    for kind, module in (("TensorFlow", "tensorflow"), ("numpy", "numpy")):
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode == 0:
            return kind
    return "plain Python"


class Work:
    """Training steps on every core, which can be stopped and continued."""

    def __init__(self, python: str, folder: Path) -> None:
        self.kind = work_kind(python)
        self._pages: list[mmap.mmap] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for number in range(os.cpu_count() or 1):
            path = folder / f"steps{number}"
            path.write_bytes(bytes(8))
            with path.open("r+b") as stream:
                self._pages.append(mmap.mmap(stream.fileno(), 8))
            line = [python, "-c", WORK[self.kind] + _WORK_TAIL, str(path)]
            self.processes.append(subprocess.Popen(line, stderr=subprocess.DEVNULL))

    def wait(self, limit_s: float = 120) -> None:
        """Until every process has made some steps."""
        deadline = time.monotonic() + limit_s
        while min(self._counts()) < 3:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"the {self.kind} steps do not start")
            time.sleep(0.05)

    def _counts(self) -> list[int]:
        return [struct.unpack("q", page[:8])[0] for page in self._pages]

    def steps(self) -> int:
        """Steps so far, on all cores."""
        return sum(self._counts())

    def run(self, on: bool) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
