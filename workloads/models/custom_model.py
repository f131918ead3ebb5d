"""The user's own model: `file.py:function`, called like a builder of the zoo.

    def tiny(image, *, classes, width):
        x = tf_keras.layers.Conv2D(int(16 * width), 3)(image)
        return tf_keras.layers.Dense(classes)(tf_keras.layers.Flatten()(x))

The function takes the images, or for other datasets a dictionary of tensors (`source` and `target`; `user` and
`item`), and by keyword whichever of these it names: batch_size, image_size, sequence_length, width, classes, training,
label. It returns logits, or a scalar loss of its own. Layers are those of tf_keras, not of Keras 3; with parameter
servers plain variables (tf.Variable, tf.compat.v1.get_variable) work too. Errors in the function are the user's, so
each becomes a BadInput that names file, function and cause.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.zoo import DATASETS, IMAGE, RATING, SEQUENCE
from driple.workloads.models.user_code import cause, user_function

KERAS_3 = "keras"
"""Its package; ours is tf_keras."""


@dataclass(frozen=True)
class Custom:
    """The user's function, ready to be called."""

    where: str
    """`file.py:function`, for messages."""
    function: Callable[..., Any]
    keywords: Mapping[str, Any]
    """Hyper-parameters that it names."""
    wants_label: bool

    def __call__(self, inputs: Mapping[str, Any], workload: Workload) -> Any:
        """Calls the function with the tensors of a batch; `label` may be missing if the function does not name it.

        Raises BadInput if the function fails, or returns neither logits nor a scalar.
        """
        kind = DATASETS[workload.dataset].kind
        given = inputs["image"] if kind == IMAGE else {name: t for name, t in inputs.items() if name != "label"}
        label = {"label": inputs["label"]} if self.wants_label else {}
        with _without_keras_3() as watched:
            result = self.guard(lambda: self.function(given, **self.keywords, **label))
        if not watched and KERAS_3 in sys.modules:
            raise self.fault(
                f"loads {KERAS_3} when it is called, which is Keras 3 and not supported; use tf_keras layers"
            )
        self._check(result, workload)
        return result

    def guard(self, action: Callable[[], Any]) -> Any:
        """Does something that runs the user's code; its exceptions become BadInput."""
        try:
            return action()
        except (Exception, SystemExit) as error:
            raise BadInput(f"{self.where}: {cause(error, self.function.__code__.co_filename)}") from error

    def fault(self, message: str) -> BadInput:
        return BadInput(f"{self.where}: {message}")

    def _check(self, result: Any, workload: Workload) -> None:
        shape = getattr(result, "shape", None)
        try:
            found = None if shape is None else [None if size is None else int(size) for size in shape]
        except (TypeError, ValueError):  # a tensor of unknown rank
            found = None
        expected = logits_shapes(workload)
        if found != [] and found not in expected:
            shown = " or ".join(map(str, expected))
            got = f"{type(result).__name__}" if found is None else f"a tensor of shape {found}"
            raise self.fault(f"returned {got}, expected logits of shape {shown}, or a scalar loss")


def logits_shapes(workload: Workload) -> list[list[int]]:
    """Allowed shapes of logits."""
    dataset = DATASETS[workload.dataset]
    if dataset.kind == SEQUENCE:
        return [[workload.batch_size, workload.sequence_length or 0, dataset.classes]]
    if dataset.kind == RATING:
        return [[workload.batch_size, 1], [workload.batch_size]]
    return [[workload.batch_size, dataset.classes]]


def load(workload: Workload, code_path: str | None) -> Custom:
    """Imports the function of `workload.model`, from the file there or from `code_path`.

    Raises BadInput for a missing or changed file, an import error, an unknown function or parameter.
    """
    path_text, _, name = workload.model.rpartition(":")
    path = Path(code_path or path_text)
    if not path_text:
        raise BadInput(f"model {workload.model!r}: expected file.py:function")
    function = user_function(path, name, workload.code_sha256)
    return _bind(f"{path}:{name}", function, workload)


def _bind(where: str, function: Callable[..., Any], workload: Workload) -> Custom:
    dataset = DATASETS[workload.dataset]
    offered = {
        "batch_size": workload.batch_size,
        "width": workload.width,
        "classes": dataset.classes,
        "training": True,
        **({"image_size": workload.image_size} if dataset.kind == IMAGE else {}),
        **({"sequence_length": workload.sequence_length} if dataset.kind == SEQUENCE else {}),
    }
    labelled = dataset.kind != SEQUENCE
    names = [*offered, *(["label"] if labelled else [])]
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (parameters[0].POSITIONAL_ONLY, parameters[0].POSITIONAL_OR_KEYWORD):
        raise BadInput(f"{where}: takes no input tensor; its first parameter must be one")
    others = parameters[1:]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in others)
    for p in others:
        fillable = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name in names
        if not fillable and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            raise BadInput(f"{where}: nothing to give for parameter {p.name!r} (on offer: {', '.join(names)})")
    named = {p.name for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    keywords = {name: value for name, value in offered.items() if takes_all or name in named}
    return Custom(where, function, keywords, wants_label=labelled and (takes_all or "label" in named))


@contextlib.contextmanager
def _without_keras_3() -> Iterator[bool]:
    """Makes calls of Keras 3 layers fail. False if Keras 3 is not loaded: that takes seconds, and nothing needs it.

    They would build, but without training mode (batch normalisation, dropout), and all-reduce would miss their weights.
    """
    if KERAS_3 not in sys.modules:
        yield False
        return
    layer_type: Any = sys.modules[KERAS_3].Layer

    def refuse(layer: Any, *_: Any, **__: Any) -> None:
        raise TypeError(
            f"{type(layer).__name__} is a layer of Keras 3 (keras), which is not supported; use tf_keras layers"
        )

    call, layer_type.__call__ = layer_type.__call__, refuse
    try:
        yield True
    finally:
        layer_type.__call__ = call
