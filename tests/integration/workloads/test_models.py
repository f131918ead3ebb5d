from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_graphs import fall, graph, losses, ordinary, parameter_count, workload

from driple.contracts.errors import BadInput
from driple.contracts.zoo import DATASETS, MODELS
from driple.workloads.data import inputs
from driple.workloads.models import registry

pytestmark = [pytest.mark.tf, pytest.mark.integration]

TORCHVISION = "docs.pytorch.org/vision/stable/models.html, table of all weights"
KERAS = "summary() of the tf_keras.applications model: trainable params"
TIMM = "github.com/huggingface/pytorch-image-models, results/model_metadata-in1k.csv"
HE = "He et al. 2015, arXiv 1512.03385, table 6; to the last digit github.com/akamaster/pytorch_resnet_cifar10"
HUANG = "Huang et al. 2016, arXiv 1608.06993, table 2"

# Trainable parameters in the standard configuration (1000 classes, or 10 on CIFAR-10). A tolerance of 0 is the count of
# the same architecture elsewhere, to the last parameter; the others are printed with two or three digits.
PUBLISHED = [
    ("resnet20", 269_722, 0, HE),
    ("resnet32", 464_154, 0, HE),
    ("resnet44", 658_586, 0, HE),
    ("resnet56", 853_018, 0, HE),
    ("resnet110", 1_727_962, 0, HE),
    ("resnet110_v2", 1.7e6, 0.02, "He et al. 2016, arXiv 1603.05027: as deep and wide as v1"),
    ("densenet40_k12", 1.0e6, 0.03, HUANG),
    ("densenet100_k12", 7.0e6, 0.01, HUANG),
    ("densenet100_k24", 27.2e6, 0.01, HUANG),
    ("alexnet", 61_100_840, 0, TORCHVISION),
    ("overfeat", 145e6, 0.01, "Sermanet et al. 2013, arXiv 1312.6229, table 4 (fast model)"),
    ("vgg11", 132_863_336, 0, TORCHVISION),
    ("vgg16", 138_357_544, 0, TORCHVISION),
    ("vgg19", 143_667_240, 0, TORCHVISION),
    ("googlenet", 6_998_552, 0, "BVLC GoogLeNet of Caffe's model zoo, without the auxiliary heads"),
    ("inception3", 23_817_352, 0, KERAS),
    ("inception4", 42_679_816, 0, TIMM),
    ("resnet50", 25_557_032, 0, TORCHVISION),
    ("resnet101", 44_549_160, 0, TORCHVISION),
    ("resnet152", 60_192_808, 0, TORCHVISION),
    ("resnet50_v1.5", 25_557_032, 0, TORCHVISION),
    ("resnet50_v2", 25_549_352, 0, TIMM + " (resnetv2_50)"),
    ("mobilenet", 4_231_976, 0, KERAS),
    ("mobilenetv2", 3_504_872, 0, TORCHVISION),
    ("densenet121", 7_978_856, 0, TORCHVISION),
    ("densenet169", 14_149_480, 0, TORCHVISION),
    ("densenet201", 20_013_928, 0, TORCHVISION),
    ("nasnet", 5_289_978, 0, KERAS),
    ("xception", 22_855_952, 0, KERAS),
]

# Those whose figure hangs on the vocabulary: with the source's vocabulary in the place of ours.
UNITS = {"transformer": (512, 37_000), "transformer_big": (1024, 37_000), "gpt2_small": (768, 50_257)}
VASWANI = "Vaswani et al. 2017, arXiv 1706.03762, table 3, 37 000 tokens in one table for both languages"
PUBLISHED += [
    ("transformer", 65e6, 0.03, VASWANI),  # rounded up there: their own sizes give 63 M
    ("transformer_big", 213e6, 0.01, VASWANI),
    ("gpt2_small", 124_439_808, 0, "huggingface.co/openai-community/gpt2: its tensors without the masks"),
]

EXPECTED = {row[0]: row[1:] for row in PUBLISHED}
FLATTENING = ("alexnet", "overfeat", "vgg11", "vgg16", "vgg19")
"""Their dense layers see every pixel, so their number of parameters hangs on the size of the image."""
DEEPER = (
    *("resnet44", "resnet56", "resnet110", "resnet44_v2", "resnet56_v2", "resnet110_v2"),
    *("densenet100_k12", "densenet100_k24", "densenet169", "densenet201"),
    *(f"resnet{depth}{version}" for depth in (101, 152) for version in ("", "_v1.5", "_v2")),
)
"""More of the layers of another model: they are counted, and their gradients, seconds of each, left out."""


def parameters(name: str, built: registry.Built) -> int:
    units, vocabulary = UNITS.get(name, (0, 0))
    ours = sum(int(variable.shape.num_elements()) for variable in built.trainable)
    return ours + units * (vocabulary - DATASETS["europarl"].classes)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_builds_small_with_a_gradient_for_every_variable(name: str) -> None:
    """Where a figure is published, at full width, and counted: one graph does for both, and graphs cost seconds."""
    import tensorflow.compat.v1 as v1

    counted = name in EXPECTED and name not in FLATTENING
    work = workload(name, width=1.0 if counted else 0.25)
    with graph() as whole:
        built = registry.build(work, inputs.batch_tensors(work, seed=1, worker=0, data_dir=None))
        if counted:
            published, tolerance, source = EXPECTED[name]
            assert parameters(name, built) == pytest.approx(published, rel=tolerance, abs=0), source
        if name not in DEEPER:
            gradients = v1.gradients(built.loss, built.trainable)
            assert [v.name for v, g in zip(built.trainable, gradients, strict=True) if g is None] == []
        assert built.loss.shape.rank == 0
        assert {type(variable).__name__ for variable in built.trainable} == {"RefVariable"}
        moving = sum("moving_mean" in variable.name for variable in v1.global_variables())
        assert len(built.updates) == 2 * moving
        assert int(built.logits.shape[0]) == work.batch_size
        assert not any(op.type.startswith("Placeholder") for op in whole.get_operations())  # nothing has to be fed


@pytest.mark.parametrize("name", FLATTENING)
def test_parameters_are_as_many_as_published_at_the_published_size(name: str) -> None:
    published, tolerance, source = EXPECTED[name]
    assert parameter_count(ordinary(name)) == pytest.approx(published, rel=tolerance, abs=0), source


@pytest.mark.parametrize(
    "name",
    ["resnet20", "densenet40_k12", "googlenet", "resnet50", "mobilenetv2", "nasnet"],
)
def test_the_first_of_each_family_is_counted_at_a_quarter_of_its_width(name: str) -> None:
    assert parameter_count(workload(name)) < EXPECTED[name][0] / 2


def lstm(inputs: int, units: int) -> int:
    return 4 * units * (inputs + units + 1)


def test_parameters_of_those_without_a_published_figure_are_as_worked_out_by_hand() -> None:
    words, embedded = DATASETS["europarl"].classes, 512
    outside = 2 * words * embedded

    def top(units: int) -> int:  # Luong's key, the mix with the context, the logits
        return units * units + 2 * units * units + (units + 1) * words

    small = outside + 2 * (lstm(512, 512) + lstm(512, 512)) + top(512)
    big = outside + 2 * (lstm(512, 512) + 3 * lstm(1024, 512)) + lstm(512, 1024) + 3 * lstm(1024, 1024) + top(1024)
    towers = (64 + 1) * 32 + (32 + 1) * 16 + (16 + 1) * 8
    lenet = (25 * 3 + 1) * 32 + (25 * 32 + 1) * 64 + (7 * 7 * 64 + 1) * 512 + (512 + 1) * 1000
    cifar = (25 * 3 + 1) * 64 + (25 * 64 + 1) * 64 + (8 * 8 * 64 + 1) * 384 + (384 + 1) * 192 + (192 + 1) * 10
    assert parameter_count(ordinary("nmt_small")) == small
    assert parameter_count(ordinary("nmt_big")) == big
    assert parameter_count(ordinary("ncf")) == (6040 + 3706) * (8 + 32) + towers + (8 + 8 + 1)
    assert parameter_count(ordinary("trivial")) == 224 * 224 * 3 + 1 + 2 * 4096 + 4097 * 1000
    assert parameter_count(ordinary("lenet")) == lenet
    assert parameter_count(ordinary("alexnet", "cifar10")) == cifar


@pytest.mark.parametrize(
    ("name", "sizes", "least"),
    [
        ("trivial", {"image_size": 16, "optimiser": "adam"}, 0.3),
        ("resnet20", {"image_size": 16, "width": 0.5}, 0.3),
        ("nmt_small", {"optimiser": "adam"}, 0.5),
        ("transformer", {"batch_size": 8}, 0.5),
        ("ncf", {"batch_size": 256, "width": 1.0, "optimiser": "adam"}, 0.2),
    ],
)
def test_the_loss_falls(name: str, sizes: dict[str, object], least: float) -> None:
    values = losses(workload(name, **{"batch_size": 16, **sizes}), 24)
    assert fall(values) > least, values


def test_each_image_model_refuses_an_image_below_its_minimum_and_says_it() -> None:
    for name, entry in registry.TABLE.items():
        if entry.minimum > 1:
            with pytest.raises(
                BadInput, match=rf"model {name}: image_size {entry.minimum - 1}, at least {entry.minimum}"
            ):
                registry.build(workload(name, image_size=entry.minimum - 1), {})


def test_a_graph_does_not_depend_on_what_was_built_before() -> None:
    def text() -> bytes:
        import tensorflow.compat.v1 as v1

        work = workload("nmt_small")
        with graph() as built:
            v1.set_random_seed(1)
            registry.build(work, inputs.batch_tensors(work, seed=1, worker=0, data_dir=None))
            return bytes(built.as_graph_def().SerializeToString(deterministic=True))

    first = text()
    parameter_count(workload("ncf"))
    assert text() == first


EAGER = """
import warnings
warnings.simplefilter("error")
import numpy as np
import tensorflow as tf
import tf_keras
from small_graphs import workload
from driple.contracts.zoo import DATASETS
from driple.workloads.data import inputs
from driple.workloads.runtime import optimisers
from driple.workloads.models import registry

for name in NAMES:
    tf_keras.utils.set_random_seed(1)  # a small network may start with units that never fire
    work = workload(name)
    network = registry.network(work)
    optimiser = optimisers.make_v2(work.optimiser, DATASETS[work.dataset].kind)
    before = [w.numpy() for w in network.model.weights]
    batch = inputs.batch_tensors(work, seed=1, worker=0, data_dir=None)
    with tf.GradientTape() as tape:
        loss = network.loss(network(batch), batch)
    gradients = tape.gradient(loss, network.model.trainable_variables)
    assert all(g is not None for g in gradients), name
    optimiser.apply_gradients(zip(gradients, network.model.trainable_variables, strict=True))
    changed = [not np.array_equal(b, w.numpy()) for b, w in zip(before, network.model.weights, strict=True)]
    count = sum(int(np.prod(w.shape)) for w in network.model.trainable_weights)
    print(name, count, float(loss), sum(changed), len(changed))
"""


def in_another_process(code: str, names: list[str]) -> list[list[str]]:
    """Runs code that wants TensorFlow as it comes (here it has been turned into a TF1 one); its output in words."""
    done = subprocess.run(
        [sys.executable, "-c", code.replace("NAMES", repr(names))],
        capture_output=True,
        text=True,
        timeout=110,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.split() for line in done.stdout.splitlines()]


def test_the_same_models_train_eagerly() -> None:
    names = ["resnet20", "alexnet", "nmt_small", "transformer_relative", "ncf"]
    lines = in_another_process(EAGER, names)
    assert [line[0] for line in lines] == names
    for name, count, loss, changed, weights in lines:
        assert int(count) == parameter_count(workload(name))
        assert 0 < float(loss) < 30
        assert int(changed) > int(weights) / 2, "weights and moving averages move"


SCOPE = """
import tensorflow as tf
from small_graphs import workload
from driple.workloads.data import inputs
from driple.workloads.models import registry

strategy = tf.distribute.OneDeviceStrategy("cpu:0")
type(strategy.extended)._num_replicas_in_sync = 2  # all that tf_keras asks of a strategy before it divides a batch

for name in NAMES:
    work = workload(name, batch_size=3)

    def step():
        batch = inputs.batch_tensors(work, seed=1, worker=0, data_dir=None)
        with tf.GradientTape() as tape:
            loss = network.loss(network(batch), batch)
        return tape.gradient(loss, network.model.trainable_variables)

    with strategy.scope():
        assert tf.distribute.get_strategy().num_replicas_in_sync == 2
        network = registry.network(work)
        gradients = tf.function(step, autograph=False).get_concrete_function().structured_outputs
    assert all(gradient is not None for gradient in gradients), name
    assert {int(tensor.shape[0]) for tensor in network.model.input.values()} == {3}, name
    print(name, int(network.model.output.shape[0]))
"""


def test_a_batch_stays_whole_in_the_scope_of_a_strategy() -> None:
    """Of every file of builders, the cheapest members: the whole zoo takes minutes."""
    names = ["resnet20", "densenet40_k12", "trivial", "lenet", "alexnet", "vgg11", "googlenet", "mobilenet", "xception"]
    names += ["nmt_medium", "transformer_relative", "gpt2_small", "ncf"]
    files = {registry.TABLE[name].function.partition(".")[0] for name in names}
    assert files == {entry.function.partition(".")[0] for entry in registry.TABLE.values()}
    assert in_another_process(SCOPE, names) == [[name, "3"] for name in names]


@pytest.mark.parametrize(("name", "published"), [("mobilenetv2", 2_236_682), ("resnet50", 23_528_522)])
def test_models_of_imagenet_on_cifar10_have_ten_classes(name: str, published: int) -> None:
    """The other two that also read CIFAR-10 are more of the same layers."""
    assert parameter_count(ordinary(name, "cifar10")) == published
