from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from small_graphs import fall, graph, losses, parameter_count, workload

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.workloads.data import inputs
from driple.workloads.models import registry

pytestmark = [pytest.mark.tf, pytest.mark.integration]

CODE = """
import keras
import tensorflow as tf
import tf_keras

def dense(image, *, classes, width):
    x = tf_keras.layers.Flatten()(image)
    x = tf_keras.layers.BatchNormalization()(x)
    x = tf_keras.layers.Dense(int(64 * width), activation="relu")(x)
    return tf_keras.layers.Dense(classes)(x)

def raw(image, batch_size):
    weights = tf.compat.v1.get_variable("w", [image.shape[1] * image.shape[2] * 3, 10])
    return tf.matmul(tf.reshape(image, [batch_size, -1]), weights)

def own_loss(image, label, **others):
    assert others["training"] and others["image_size"] == 8 and "sequence_length" not in others
    x = tf_keras.layers.Dense(10)(tf_keras.layers.Flatten()(image))
    each = tf_keras.losses.sparse_categorical_crossentropy(label, x, from_logits=True)
    return tf.reduce_mean(each)

def language(batch, classes):
    return tf_keras.layers.Dense(classes)(tf_keras.layers.Embedding(classes, 16)(batch["source"]))

def plain(image, batch_size):
    return tf.reshape(image, [batch_size, -1]) @ tf.Variable(tf.zeros([8 * 8 * 3, 10]), name="mine")

def keras_3(image, classes):
    return keras.layers.Dense(classes)(tf.reshape(image, [image.shape[0], -1]))

def rating(batch):
    x = tf_keras.layers.Embedding(6040, 4)(batch["user"]) * tf_keras.layers.Embedding(3706, 4)(batch["item"])
    return tf_keras.layers.Dense(1)(x)

def fails(image):
    return [][1]

def leaves(image):
    raise SystemExit

def shape(image):
    return tf_keras.layers.Dense(7)(tf_keras.layers.Flatten()(image))

def text(image):
    return "logits"

def nothing(image, classes):
    return tf.reduce_mean(image, axis=[1, 2, 3])[:, None] * tf.ones([1, classes])

def needs(image, depth):
    return image

def none():
    return None

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def own(file: Path, function: str, **sizes: object) -> Workload:
    return workload(f"{file}:{function}", **sizes)


def build(work: Workload, code_path: Path | None = None) -> registry.Built:
    with graph():
        batch = inputs.batch_tensors(work, seed=1, worker=0, data_dir=None)
        return registry.build(work, batch, code_path=str(code_path) if code_path else None)


@pytest.mark.parametrize(
    ("function", "dataset", "sizes"),
    [
        ("dense", "cifar10", {"width": 1.0}),
        ("raw", "cifar10", {}),
        ("own_loss", "cifar10", {}),
        ("language", "europarl", {"optimiser": "adam"}),
        ("rating", "movielens", {"optimiser": "adam", "batch_size": 512}),
    ],
)
def test_a_function_of_the_users_trains(file: Path, function: str, dataset: str, sizes: dict[str, object]) -> None:
    values = losses(own(file, function, dataset=dataset, **{"batch_size": 32, **sizes}), 60)
    assert fall(values) > 0.01, values


def test_what_layers_keep_beside_their_weights_is_updated_too(file: Path) -> None:
    built = build(own(file, "dense"))
    assert [update.name.split("/")[0] for update in built.updates] == ["batch_normalization"] * 2
    assert [int(v.shape.num_elements()) for v in built.trainable] == [192, 192, 192 * 16, 16, 160, 10]
    assert build(own(file, "own_loss")).logits is None


def test_parameters_are_counted(file: Path) -> None:
    assert parameter_count(own(file, "raw")) == 8 * 8 * 3 * 10


def test_the_file_may_be_elsewhere_on_this_host(file: Path) -> None:
    assert build(workload("models/theirs.py:dense"), code_path=file).trainable


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("fails", r"mine\.py:fails: IndexError at line \d+: list index out of range"),
        ("leaves", r"mine\.py:leaves: SystemExit at line \d+: no message"),
        (
            "shape",
            r"mine\.py:shape: returned a tensor of shape \[2, 7\], expected logits of shape \[2, 10\], or a scalar",
        ),
        ("text", r"mine\.py:text: returned str, expected logits"),
        ("nothing", r"mine\.py:nothing: makes no trainable variable"),
        ("keras_3", r"mine\.py:keras_3: TypeError at line \d+: Dense is a layer of Keras 3 .*; use tf_keras layers$"),
        ("needs", r"mine\.py:needs: nothing to give for parameter 'depth' \(on offer: batch_size, width, classes,"),
        ("none", r"mine\.py:none: takes no input tensor"),
        ("densee", r"mine\.py: unknown function 'densee'; did you mean 'dense'\?"),
        ("number", r"mine\.py: unknown function 'number'"),
    ],
)
def test_a_function_that_cannot_be_used_is_named_with_the_cause(file: Path, function: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build(own(file, function))


def test_a_file_that_cannot_be_used_is_named_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone\.py:f: cannot read the file: No such file"):
        build(own(tmp_path / "gone.py", "f"))
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(BadInput, match=r"broken\.py:f: cannot be imported: SyntaxError"):
        build(own(tmp_path / "broken.py", "f"))
    (tmp_path / "lost.py").write_text("x = 1\nimport no_such_module\n")
    with pytest.raises(BadInput, match=r"lost\.py:f: cannot be imported: ModuleNotFoundError at line 2: No module"):
        build(own(tmp_path / "lost.py", "f"))
    (tmp_path / "data.txt").write_text("def f(x): pass\n")
    with pytest.raises(BadInput, match=r"data\.txt:f: not a Python file"):
        build(own(tmp_path / "data.txt", "f"))


def test_a_file_that_changed_since_it_was_planned_is_refused(file: Path) -> None:
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    assert build(own(file, "dense", code_sha256=right))
    with pytest.raises(BadInput, match="not the one that was planned"):
        build(own(file, "dense", code_sha256="0" * 64))


EAGER = """
import sys, warnings
warnings.simplefilter("error")
import tensorflow as tf
from small_graphs import workload
from driple.contracts.errors import BadInput
from driple.workloads.data import inputs
from driple.workloads.models import registry

for function in ("dense", "own_loss", "language", "raw", "plain", "keras_3", "nothing"):
    work = workload(f"{sys.argv[1]}:{function}", dataset="europarl" if function == "language" else "cifar10")
    batch = inputs.batch_tensors(work, seed=1, worker=0, data_dir=None)
    try:
        network = registry.network(work)
        with tf.GradientTape() as tape:
            loss = network.loss(network(batch), batch)
        gradients = tape.gradient(loss, network.model.trainable_variables)
        print(function, loss.shape.rank == 0, all(g is not None for g in gradients))
    except BadInput as error:
        print(error)
"""


def test_a_function_of_the_users_trains_eagerly_if_it_is_made_of_layers(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EAGER, str(file)],
        capture_output=True,
        text=True,
        timeout=110,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[:3] == ["dense True True", "own_loss True True", "language True True"]
    faults = dict(line.removeprefix(f"{file}:").split(": ", 1) for line in lines[3:])
    loose = "is in no tf_keras layer, and all-reduce sees no other; use tf_keras layers, or parameter servers"
    assert faults == {
        "raw": f"variable 'w' {loose}",
        "plain": f"variable 'mine' {loose}",
        "keras_3": "TypeError at line 29: Dense is a layer of Keras 3 (keras), which is not supported; "
        "use tf_keras layers",
        "nothing": "makes no trainable variable",
    }
