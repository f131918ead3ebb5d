"""Builders of models by name. The table itself needs no TensorFlow."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.run_spec import Workload
from driple.contracts.zoo import DATASETS, IMAGE, RATING, SEQUENCE, Dataset, find_model


@dataclass(frozen=True)
class Entry:
    """Where a model's builder is."""

    function: str
    """`module.function` in this package."""
    minimum: int = 1
    """Smallest image side that still leaves a pixel after the last pooling, or shortest sequence."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the builder for this model."""
    maximum: int | None = None
    """Longest sequence, where positions are learned."""
    reads: tuple[str, ...] | None = None
    """Entries of a batch that it takes; None for all but the label."""


_BOTTLENECKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
_VERSIONS = {"": 1, "_v1.5": 1.5, "_v2": 2}

TABLE: dict[str, Entry] = {
    **{
        f"resnet{depth}{suffix}": Entry("resnet.cifar", 4, {"depth": depth, "version": version})
        for depth in (20, 32, 44, 56, 110)
        for suffix, version in (("", 1), ("_v2", 2))
    },
    "densenet40_k12": Entry("densenet.cifar", 4, {"depth": 40, "growth": 12}),
    "densenet100_k12": Entry("densenet.cifar", 4, {"depth": 100, "growth": 12}),
    "densenet100_k24": Entry("densenet.cifar", 4, {"depth": 100, "growth": 24}),
    "trivial": Entry("classic.trivial"),
    "lenet": Entry("classic.lenet", 4),
    "alexnet": Entry("classic.alexnet", 63),
    "overfeat": Entry("classic.overfeat", 71),
    "vgg11": Entry("classic.vgg", 32, {"convolutions": (1, 1, 2, 2, 2)}),
    "vgg16": Entry("classic.vgg", 32, {"convolutions": (2, 2, 3, 3, 3)}),
    "vgg19": Entry("classic.vgg", 32, {"convolutions": (2, 2, 4, 4, 4)}),
    "googlenet": Entry("inception.googlenet", 32),
    "inception3": Entry("inception.inception3", 75),
    "inception4": Entry("inception.inception4", 75),
    **{
        name + suffix: Entry("resnet.imagenet", 32, {"blocks": blocks, "version": version})
        for name, blocks in _BOTTLENECKS.items()
        for suffix, version in _VERSIONS.items()
    },
    "mobilenet": Entry("applications.mobilenet", 32),
    "mobilenetv2": Entry("applications.mobilenetv2", 32),
    "densenet121": Entry("densenet.imagenet", 32, {"blocks": (6, 12, 24, 16)}),
    "densenet169": Entry("densenet.imagenet", 32, {"blocks": (6, 12, 32, 32)}),
    "densenet201": Entry("densenet.imagenet", 32, {"blocks": (6, 12, 48, 32)}),
    "nasnet": Entry("applications.nasnet", 32),
    "xception": Entry("xception.xception", 32),
    "nmt_small": Entry("nmt.nmt", 1, {"depth": 2, "units": 512, "both_ways": False}),
    "nmt_medium": Entry("nmt.nmt", 1, {"depth": 4, "units": 512, "both_ways": True}),
    "nmt_big": Entry("nmt.nmt", 1, {"depth": 4, "units": 1024, "both_ways": True}),
    "transformer": Entry("transformer.translate", 1, {"units": 512, "heads": 8}),
    "transformer_big": Entry("transformer.translate", 1, {"units": 1024, "heads": 16, "dropout": 0.3}),
    "transformer_relative": Entry("transformer.translate", 1, {"units": 512, "heads": 8, "decoder": "relative"}),
    "transformer_aan": Entry("transformer.translate", 1, {"units": 512, "heads": 8, "decoder": "average"}),
    "gpt2_small": Entry("transformer.gpt2", maximum=1024, reads=("target",)),
    "ncf": Entry("ncf.ncf"),
}
VARIANTS: dict[tuple[str, str], Entry] = {("alexnet", "cifar10"): Entry("classic.alexnet_cifar", 4)}
"""Models that have another network on another dataset."""


@dataclass(frozen=True)
class Built:
    """A model in a TF1 graph."""

    loss: Any
    """Scalar: the mean over the batch."""
    updates: list[Any]
    """Batch normalisation's moving averages: group them with the train operation."""
    trainable: list[Any]
    """Variables to be trained, in the order of their layers."""
    logits: Any
    """None for a user's model that returns its loss."""


@dataclass(frozen=True)
class Network:
    """A model for an eager loop."""

    model: Any
    """A tf_keras.Model from a dictionary of inputs to logits."""
    loss: Callable[[Any, Mapping[str, Any]], Any]
    """Function of the model's output and the batch to a scalar."""
    accuracy: Callable[[Any, Mapping[str, Any]], Any]
    """The same; gives None where the model returns its loss."""

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """The model's outputs in training mode for a batch; entries that it does not read are left out."""
        return self.model({name: batch[name] for name in self.model.input}, training=True)


def is_custom(model: str) -> bool:
    """Whether the model is `file.py:function`, not a name of the zoo."""
    return ":" in model


def dataset_of(workload: Workload) -> Dataset:
    """The dataset of a workload; raises UnknownName if there is none."""
    if workload.dataset not in DATASETS:
        raise UnknownName("dataset", workload.dataset, tuple(DATASETS))
    return DATASETS[workload.dataset]


def build(workload: Workload, batch: Mapping[str, Any], *, code_path: str | None = None) -> Built:
    """Builds model and loss in the current TF1 graph, in training mode, from tensors of `inputs.batch_tensors`.

    Raises BadInput for a size that the model cannot take, or a user's model that cannot be used.
    """
    import tf_keras
    from tf_keras.src import backend  # the public learning_phase_scope is the same and warns

    hyper = hyper_of(workload)
    with backend.deprecated_internal_learning_phase_scope(1):
        if is_custom(workload.model):
            return _build_custom(workload, batch, code_path)
        inputs = {name: tf_keras.Input(tensor=batch[name]) for name in _reads(workload)}
        logits = _builder(workload)(inputs, hyper)
        model = tf_keras.Model(inputs, logits)
    loss = loss_of(dataset_of(workload), logits, batch)
    return Built(loss, list(model.updates), list(model.trainable_weights), logits)


def network(workload: Workload, *, code_path: str | None = None) -> Network:
    """The same model over plain inputs, for eager loops. Raises BadInput; also if a user's weights are in no layer."""
    import tf_keras

    def inputs_for(names: Iterable[str]) -> dict[str, Any]:
        shapes = input_shapes(workload)
        # To tf_keras a batch_size on its own is that of all workers together, to be divided among the replicas of the
        # strategy whose scope this is. Ours is each worker's; a whole shape is taken as it is.
        whole = {name: (workload.batch_size, *shapes[name][0]) for name in names}
        return {name: tf_keras.Input(batch_shape=whole[name], name=name, dtype=shapes[name][1]) for name in whole}

    hyper, dataset = hyper_of(workload), dataset_of(workload)
    if is_custom(workload.model):
        model = _custom_model(workload, inputs_for, code_path)
    else:
        inputs = inputs_for(_reads(workload))
        model = tf_keras.Model(inputs, _builder(workload)(inputs, hyper))
    return Network(model, functools.partial(loss_of, dataset), functools.partial(accuracy_of, dataset))


def _build_custom(workload: Workload, batch: Mapping[str, Any], code_path: str | None) -> Built:
    import tensorflow as tf

    from driple.workloads.models import custom_model

    graph, v1 = tf.compat.v1.get_default_graph(), tf.compat.v1
    old_operations, old_variables = len(graph.get_operations()), set(map(id, v1.trainable_variables()))
    found = custom_model.load(workload, code_path)
    result = found(batch, workload)
    trainable = [variable for variable in v1.trainable_variables() if id(variable) not in old_variables]
    if not trainable:
        raise found.fault("makes no trainable variable")
    # Layers that are not kept cannot be asked for their updates; the graph has no other operations of these types.
    new = graph.get_operations()[old_operations:]
    updates = [operation for operation in new if operation.type.startswith(("AssignSub", "AssignAdd"))]
    is_loss = result.shape.rank == 0
    loss = result if is_loss else loss_of(dataset_of(workload), result, batch)
    return Built(loss, updates, trainable, None if is_loss else result)


def _custom_model(
    workload: Workload, inputs_for: Callable[[Iterable[str]], dict[str, Any]], code_path: str | None
) -> Any:
    import tensorflow as tf
    import tf_keras

    from driple.workloads.models import custom_model

    found = custom_model.load(workload, code_path)
    inputs = inputs_for([*_reads(workload), *(["label"] if found.wants_label else [])])
    made: list[Any] = []

    def remember(make: Callable[..., Any], **options: Any) -> Any:
        made.append(make(**options))
        return made[-1]

    with tf.variable_creator_scope(remember):
        outputs = found(inputs, workload)
    model = found.guard(lambda: tf_keras.Model(inputs, outputs))  # makes counters of its own, which are ignored
    owned = set(map(id, model.weights))
    for variable in made:
        if variable.trainable and variable.dtype.is_floating and id(variable) not in owned:
            name = variable.name.partition(":")[0]
            cause = f"variable {name!r} is in no tf_keras layer, and all-reduce sees no other"
            raise found.fault(f"{cause}; use tf_keras layers, or parameter servers")
    if not model.trainable_weights:
        raise found.fault("makes no trainable variable")
    return model


def input_shapes(workload: Workload) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape without the batch and type of each entry of a batch."""
    kind, size = dataset_of(workload).kind, size_of(workload)
    if kind == IMAGE:
        return {"image": ((size, size, 3), "float32"), "label": ((), "int32")}
    if kind == SEQUENCE:
        return {"source": ((size,), "int32"), "target": ((size + 1,), "int32")}
    return {"user": ((), "int32"), "item": ((), "int32"), "label": ((), "int32")}


def size_of(workload: Workload) -> int:
    """Image side or sequence length; 0 if there is none. Raises BadInput for sizes that the model cannot take."""
    dataset = dataset_of(workload)
    field_name = {IMAGE: "image_size", SEQUENCE: "sequence_length"}.get(dataset.kind)
    size = (getattr(workload, field_name) if field_name else None) or 0
    entry = Entry("") if is_custom(workload.model) else entry_of(workload)
    if field_name and size < entry.minimum:
        found = size or "is not set"
        raise BadInput(f"model {workload.model}: {field_name} {found}, at least {entry.minimum} is needed")
    if entry.maximum is not None and size > entry.maximum:
        raise BadInput(f"model {workload.model}: {field_name} {size}, at most {entry.maximum} is possible")
    if workload.batch_size < 1:
        raise BadInput(f"model {workload.model}: batch_size {workload.batch_size}, at least 1 is needed")
    if not workload.width > 0:
        raise BadInput(f"model {workload.model}: width {workload.width:g}, more than 0 is needed")
    return size


def hyper_of(workload: Workload) -> Any:
    """The sizes of a workload for a builder; raises BadInput as `size_of` does."""
    from driple.workloads.models.base import Hyper

    return Hyper(workload.batch_size, size_of(workload), dataset_of(workload).classes, workload.width)


def loss_of(dataset: Dataset, logits: Any, batch: Mapping[str, Any]) -> Any:
    """Mean cross entropy without padding tokens."""
    import tensorflow as tf

    if logits.shape.rank == 0:  # a user's model that returned its loss
        return logits
    if dataset.kind == RATING:
        labels = tf.cast(batch["label"], tf.float32)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.reshape(logits, [-1])))
    if dataset.kind == IMAGE:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)
        return tf.reduce_mean(losses)
    labels = tf.reshape(batch["target"][:, 1:], [-1])
    flat = tf.reshape(logits, [-1, int(logits.shape[-1])])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=flat)
    real = tf.cast(tf.not_equal(labels, 0), tf.float32)
    return tf.reduce_sum(losses * real) / tf.maximum(tf.reduce_sum(real), 1.0)


def accuracy_of(dataset: Dataset, logits: Any, batch: Mapping[str, Any]) -> Any:
    """Share of images, tokens or ratings that are classified right; None if a user's model returned its loss."""
    import tensorflow as tf

    if logits is None or logits.shape.rank == 0:
        return None
    if dataset.kind == RATING:
        right = tf.equal(tf.reshape(logits, [-1]) > 0, tf.cast(batch["label"], tf.float32) > 0.5)
    else:
        labels = batch["label"] if dataset.kind == IMAGE else batch["target"][:, 1:]
        flat = tf.reshape(logits, [-1, int(logits.shape[-1])])
        right = tf.equal(tf.argmax(flat, -1, tf.int32), tf.cast(tf.reshape(labels, [-1]), tf.int32))
    return tf.reduce_mean(tf.cast(right, tf.float32))


def entry_of(workload: Workload) -> Entry:
    """The zoo's entry for a workload. Raises BadInput for an unknown model, or one of another dataset."""
    model = find_model(workload.model)
    if dataset_of(workload).name not in model.datasets:
        raise BadInput(f"model {model.name} is for {' or '.join(model.datasets)}, not for {workload.dataset}")
    return VARIANTS.get((model.name, workload.dataset)) or TABLE[model.name]


def _reads(workload: Workload) -> tuple[str, ...]:
    chosen = None if is_custom(workload.model) else entry_of(workload).reads
    return chosen or tuple(name for name in input_shapes(workload) if name != "label")


def _builder(workload: Workload) -> Callable[[Mapping[str, Any], Any], Any]:
    entry = entry_of(workload)
    module, _, name = entry.function.partition(".")
    function = getattr(importlib.import_module(f"driple.workloads.models.{module}"), name)
    return lambda inputs, hyper: function(inputs, hyper, **entry.options)
