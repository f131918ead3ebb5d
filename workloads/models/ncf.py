"""Neural collaborative filtering: NeuMF of He et al. 2017 (arXiv 1708.05031)."""

from __future__ import annotations

from driple.workloads.models.base import Hyper, Inputs, Tensor, layers

USERS = 6040
"""Users of MovieLens-1M; its items are the classes of the dataset."""


def ncf(
    inputs: Inputs, hyper: Hyper, *, users: int = USERS, factors: int = 8, hidden: tuple[int, ...] = (64, 32, 16, 8)
) -> Tensor:
    """Products of factors beside a tower of dense layers, with the sizes of TF's model garden for MovieLens-1M."""
    factors, (first, *rest) = hyper.channels(factors), [hyper.channels(units, 2) for units in hidden]
    sides = ((inputs["user"], users), (inputs["item"], hyper.classes))
    product = layers.Multiply()([layers.Embedding(rows, factors)(ids) for ids, rows in sides])
    tower = layers.Concatenate()([layers.Embedding(rows, first // 2)(ids) for ids, rows in sides])
    for units in rest:
        tower = layers.Dense(units, activation="relu")(tower)
    return layers.Dense(1)(layers.Concatenate()([product, tower]))
