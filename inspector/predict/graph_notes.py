"""What a prediction says of a graph that TensorFlow did not build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from driple.contracts.graph_makers import ONNX, TENSORFLOW, title_of
from driple.contracts.strategy import FRAMEWORKS, STRATEGIES

if TYPE_CHECKING:
    from driple.inspector.predict.request import PredictionQuery


def graph_notes(query: PredictionQuery, *, simulated: bool) -> Iterator[str]:
    """A line for each thing to know."""
    maker, strategy = query.maker, STRATEGIES[query.strategy]
    if maker == ONNX:
        yield "an ONNX file has the forward pass only: loss, gradients and updates are derived from it by rule"
    elif maker not in strategy.frameworks:
        others = FRAMEWORKS[strategy.default_framework].title
        yield f"{title_of(maker)} has no strategy {strategy.name}: the answer is for {others}'s, with this model"
    if simulated and maker != TENSORFLOW:
        yield f"the simulator has op times and runtime costs of {title_of(TENSORFLOW)}, not of {_runtime(maker)}"


def _runtime(maker: str) -> str:
    return "another framework" if maker == ONNX else title_of(maker)
