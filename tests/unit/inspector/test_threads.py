"""What is small is computed by one thread, and others' numbers of threads stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import training_work as work
from threadpoolctl import threadpool_info

from driple.inspector.base_model.stacked_regressor import BaseModel
from driple.inspector.data.examples import Examples
from driple.inspector.training.threads import FEW, solver_threads, suited, torch_threads
from driple.inspector.training.train_network import Epoch


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


def solvers() -> set[int]:
    np.linalg.svd(np.eye(2))  # what is not loaded has no threads
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_a_small_network_has_one_thread_and_a_large_one_all() -> None:
    with torch_threads(3):
        assert suited(nodes=32 * 20, hidden=32) == 1
        assert suited(nodes=32 * 100, hidden=64) == 3


@pytest.mark.parametrize(("asked", "expected"), [(None, 1), (2, 2)])
def test_a_training_has_the_threads_that_suit_it_or_were_asked_for(
    examples: Examples, asked: int | None, expected: int
) -> None:
    seen = []

    def watch(member: int, epoch: Epoch) -> None:
        seen.append(torch.get_num_threads())

    with torch_threads(3):
        work.trained(examples, work.small(epochs=1), watch=watch, threads=asked)
        assert torch.get_num_threads() == 3
    assert set(seen) == {expected}


def test_few_rows_are_solved_by_one_thread_and_many_by_all(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen, fit = solvers(), [], BaseModel.fit

    def watched(*arguments: object) -> object:
        seen.append(solvers())
        return fit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(BaseModel, "fit", watched)
    work.trained(examples, work.small(epochs=1, plain=True))
    assert seen and all(each == {1} for each in seen)
    assert solvers() == before
    with solver_threads(FEW):
        assert solvers() == before


def test_a_prediction_has_the_threads_that_suit_it(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    inspector = work.trained(examples).inspector
    seen = []
    network = type(inspector.networks[0])
    answer = network.forward

    def forward(self: Any, *inputs: Any) -> Any:
        seen.append(torch.get_num_threads())
        return answer(self, *inputs)

    monkeypatch.setattr(network, "forward", forward)
    with torch_threads(3):
        inspector.predict(examples)
        assert seen and set(seen) == {1}
        assert torch.get_num_threads() == 3
