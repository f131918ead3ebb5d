"""Faster ways, native kernels and gradients written out: the same values and gradients, wherever they serve."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from published_recipe_kernels import install, uninstall
from published_recipe_kernels import kernel_library as library_module
from published_recipe_kernels.chain_gradients import chain_in_place
from published_recipe_kernels.chain_kernel import chain_by_kernel
from published_recipe_kernels.kernel_library import SWITCH, library
from published_recipe_kernels.set2set_kernel import set2set_by_kernel
from torch import Tensor

from driple.inspector.model.model_config import PRESETS
from driple.inspector.network.batching.dense import DenseGraphs, dense
from driple.inspector.network.graph_network import Network
from driple.inspector.network.layers.gcn import GcnLayer
from driple.inspector.network.layers.gru import StateCell
from driple.inspector.network.layers.layer_chain import chain
from driple.inspector.network.readouts.set2set import set2set

EQUAL, RAGGED = (20,) * 9, (7, 20, 1, 2, 3, 40, 33, 16, 16, 16, 5)


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    torch.manual_seed(7)
    install()
    yield
    uninstall()


@pytest.fixture
def needs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert library() is not None, "no C++ compiler (sudo apt-get install g++), or it does not make our kernels"


def graphs_of(sizes: Sequence[int]) -> DenseGraphs:
    """Rings with a chord, and random features."""
    features = [torch.rand(n, 3) for n in sizes]
    edges = [{tuple(sorted(pair)) for i in range(n) for pair in ((i, (i + 1) % n), (i, (3 * i) % n))} for n in sizes]
    pairs = [[pair for pair in own if pair[0] != pair[1]] for own in edges]
    return dense(features, [torch.tensor(own, dtype=torch.int64).reshape(-1, 2) for own in pairs])


class Parts:
    """A chain of its own."""

    def __init__(self, hidden: int, manner: str = "message") -> None:
        self.first, self.other, self.cell = GcnLayer(3, hidden), GcnLayer(hidden, hidden), StateCell(manner, hidden)
        self.weights = [w for module in (self.first, self.other, self.cell) for w in module.parameters()]

    def by_kernel(self, graphs: DenseGraphs, x: Tensor, steps: Sequence[int]) -> Tensor | None:
        return chain_by_kernel(graphs, x, self.first, self.other, self.cell, steps)

    def in_place(self, graphs: DenseGraphs, x: Tensor, steps: Sequence[int]) -> Tensor | None:
        return chain_in_place(graphs, x, self.first, self.other, self.cell, steps)

    def plainly(self, graphs: DenseGraphs, x: Tensor, steps: Sequence[int]) -> Tensor:
        return chain(graphs, x, lambda step: self.other if step else self.first, self.cell, steps)[-1]


def gradients(result: Tensor, up: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad((result * up).sum(), of))


def assert_equal(one: Tensor | None, other: Tensor) -> None:
    """To 1e-5 of the largest number."""
    assert one is not None
    largest = float(other.detach().abs().max())
    assert largest > 0
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("hidden", [16, 64])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
def test_the_chain_is_equal_in_values_and_gradients(needs_kernels: None, sizes: Sequence[int], hidden: int) -> None:
    graphs, parts = graphs_of(sizes), Parts(hidden)
    steps = [max(1, n // 2) for n in sizes]
    x = graphs.features.clone().requires_grad_()
    one, other = parts.by_kernel(graphs, x, steps), parts.plainly(graphs, x, steps)
    assert one is not None
    assert_equal(one * graphs.real, other * graphs.real)
    up = torch.randn(other.shape) * graphs.real
    of = [x, *parts.weights]
    for a, b in zip(gradients(one, up, of), gradients(other, up, of), strict=True):
        assert_equal(a, b)


@pytest.mark.parametrize("hidden", [16, 23])
@pytest.mark.parametrize("steps", [2, 3, 12])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED, (90,) * 3, (90, 60, 7)])  # the large ones have few edges for it
def test_the_chain_with_gradients_written_out_is_equal(sizes: Sequence[int], steps: int, hidden: int) -> None:
    graphs, parts = graphs_of(sizes), Parts(hidden)
    x = graphs.features.clone().requires_grad_()
    one, other = (way(graphs, x, [steps] * len(sizes)) for way in (parts.in_place, parts.plainly))
    assert one is not None and other is not None
    assert_equal(one, other)
    with torch.no_grad():
        inferred = parts.in_place(graphs, x, [steps] * len(sizes))
    assert inferred is not None and torch.equal(inferred, one)
    up, of = torch.randn(other.shape), [x, *parts.weights]
    for a, b in zip(gradients(one, up, of), gradients(other, up, of), strict=True):
        assert_equal(a, b)


def test_gradients_written_out_are_those_of_what_learns() -> None:
    """As in a transfer: some weights are frozen, and states come from before."""
    graphs, parts = graphs_of(EQUAL), Parts(16)
    parts.other.requires_grad_(False)
    state = torch.randn(len(EQUAL), max(EQUAL), 16)
    steps, of = [4] * len(EQUAL), list(parts.cell.parameters())
    one = chain_in_place(graphs, state, parts.other, parts.other, parts.cell, steps)
    other = chain(graphs, state, lambda step: parts.other, parts.cell, steps)[-1]
    assert_equal(one, other)
    assert one is not None
    up = torch.randn(other.shape)
    for a, b in zip(gradients(one, up, of), gradients(other, up, of), strict=True):
        assert_equal(a, b)
    assert parts.other.weight.grad is None


def test_what_is_not_written_out_is_left_to_autograd() -> None:
    graphs, parts = graphs_of((5, 5)), Parts(16)
    assert parts.in_place(graphs, graphs.features, (2, 2)) is not None
    for steps in ((1, 1), (2, 3)):
        assert parts.in_place(graphs, graphs.features, steps) is None
    assert Parts(16, "state").in_place(graphs, graphs.features, (2, 2)) is None
    assert chain_in_place(object(), graphs.features, parts.first, parts.other, parts.cell, (2, 2)) is None  # type: ignore[arg-type]
    with torch.autocast("cpu", torch.bfloat16):
        assert parts.in_place(graphs, graphs.features, (2, 2)) is None
    double = DenseGraphs(graphs.features.double(), graphs.adjacency.double(), graphs.counts)
    assert parts.in_place(double, double.features, (2, 2)) is None


@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
def test_set2set_is_equal_in_values_and_gradients(
    needs_kernels: None, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int]
) -> None:
    graphs, lstm = graphs_of(sizes), torch.nn.LSTMCell(64, 32)
    x = torch.randn(len(sizes), max(sizes), 32, requires_grad=True)  # what is in rows that fill up does not matter
    up, of = torch.randn(len(sizes), 64), [x, *lstm.parameters()]
    one = set2set_by_kernel(graphs, x, lstm, sizes)
    monkeypatch.setenv(SWITCH, "off")
    other = set2set(graphs, x, lstm, sizes)
    assert_equal(one, other)
    assert one is not None
    for a, b in zip(gradients(one, up, of), gradients(other, up, of), strict=True):
        assert_equal(a, b)


@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
def test_the_network_of_the_paper_is_the_same_with_and_without(
    needs_kernels: None, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int]
) -> None:
    graphs, network = graphs_of(sizes), Network(PRESETS["paper"].network, 3, 0)
    for linear in network.mlp:  # the published start is so near zero that little would reach the layers
        linear.reset_parameters()
    up, of = torch.randn(12, len(sizes)).t(), list(network.parameters())
    found = []
    for switch in ("", "off"):
        monkeypatch.setenv(SWITCH, switch)
        result = network(graphs)
        with torch.no_grad():
            assert torch.equal(network(graphs), result)
        found.append([result, *gradients(result, up, of)])
    assert not torch.equal(found[0][0], found[1][0])  # two ways, indeed
    for a, b in zip(*found, strict=True):
        assert_equal(a, b)


def test_neither_threads_nor_company_change_a_bit(needs_kernels: None) -> None:
    graphs, parts = graphs_of(RAGGED), Parts(32)
    steps, up = [4] * len(RAGGED), torch.randn(len(RAGGED), max(RAGGED), 32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            result = parts.by_kernel(graphs, graphs.features, steps)
            assert result is not None
            found.append([result, *gradients(result, up, parts.weights)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    for i, n in enumerate(RAGGED):
        alone = DenseGraphs(graphs.features[i : i + 1, :n], graphs.adjacency[i : i + 1, :n, :n], [n])
        result = parts.by_kernel(alone, alone.features, [4])
        assert result is not None
        assert torch.equal(result[0], found[0][0][i, :n])


def test_batches_that_overlap_keep_their_own_tapes(needs_kernels: None) -> None:
    parts, ups = Parts(16), (torch.randn(2, 9, 16), torch.randn(3, 6, 16))
    batches = [graphs_of((9, 9)), graphs_of((6, 6, 6))]

    def results() -> list[Tensor]:
        found = [parts.by_kernel(graphs, graphs.features, [3] * len(graphs.counts)) for graphs in batches]
        return [result for result in found if result is not None]

    together = [gradients(result, up, parts.weights) for result, up in zip(results(), ups, strict=True)]
    apart = [gradients(results()[i], ups[i], parts.weights) for i in range(2)]
    for one, other in zip(together, apart, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_second_backward_pass_says_what_to_do(needs_kernels: None) -> None:
    graphs, parts, lstm = graphs_of((5, 5)), Parts(16), torch.nn.LSTMCell(32, 16)
    state = parts.by_kernel(graphs, graphs.features, (2, 2))
    assert state is not None
    written_out = parts.in_place(graphs, graphs.features, (2, 2))
    for result in (state, written_out, set2set_by_kernel(graphs, state.detach(), lstm, (5, 5))):
        assert result is not None
        result.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="again first"):
            result.sum().backward()


def test_what_the_kernels_do_not_know_is_left_to_the_plain_way(needs_kernels: None) -> None:
    graphs, steps, parts = graphs_of((5, 5)), (2, 2), Parts(16)
    assert parts.by_kernel(graphs, graphs.features, steps) is not None
    assert Parts(24).by_kernel(graphs, graphs.features, steps) is None
    assert Parts(16, "state").by_kernel(graphs, graphs.features, steps) is None
    assert chain_by_kernel(graphs, graphs.features, parts.first, parts.other, None, steps) is None
    assert chain_by_kernel(object(), graphs.features, parts.first, parts.other, parts.cell, steps) is None  # type: ignore[arg-type]
    assert parts.by_kernel(graphs, torch.zeros(2, 5, 4), steps) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert parts.by_kernel(graphs, graphs.features, steps) is None
    for width in (16, 24):
        x = torch.zeros(2, 5, width)
        assert (set2set_by_kernel(graphs, x, torch.nn.LSTMCell(2 * width, width), steps) is None) == (width == 24)


def test_double_precision_goes_the_plain_way_and_answers() -> None:
    graphs = graphs_of((6, 4))
    double = DenseGraphs(graphs.features.double(), graphs.adjacency.double(), graphs.counts)
    network = Network(PRESETS["paper"].network, 3, 0)
    single = network(graphs)
    network.double()
    first, other = network.layers
    assert chain_by_kernel(double, double.features, first, other, network.cell, (3, 2)) is None
    answer = network(double)
    assert answer.dtype == torch.float64
    assert_equal(single.double(), answer)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def no_compiler(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("CXX", raising=False)
    patch.setenv("PATH", str(folder))


def one_that_fails(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CXX", script(folder / "broken-c++", "echo no such thing >&2; exit 1"))


def one_that_writes_no_library(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CXX", script(folder / "odd-c++", 'for last; do :; done; echo nonsense > "$last"'))


def one_that_hangs(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CXX", script(folder / "slow-c++", "exec sleep 60"))
    patch.setattr(library_module, "BUILD_S", 0.2)


def no_cache(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CXX", script(folder / "any-c++", "exit 0"))
    (folder / "driple").write_text("in the way")


def switched_off(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(SWITCH, "off")


@pytest.mark.parametrize(
    "trouble", [no_compiler, one_that_fails, one_that_writes_no_library, one_that_hangs, no_cache, switched_off]
)
def test_without_a_library_the_answer_is_the_same(
    trouble: Callable[[Path, pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, network = graphs_of((6, 4)), Network(PRESETS["paper"].network, 3, 0)
    monkeypatch.delenv(SWITCH, raising=False)
    usual = network(graphs)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trouble(tmp_path, monkeypatch)
    assert library() is None
    assert_equal(network(graphs), usual)


def test_a_compiler_without_openmp_and_a_cache_of_ones_own(
    needs_kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = next(found for name in ("c++", "g++", "clang++") if (found := shutil.which(name)))
    log = tmp_path / "calls"
    simple = f'echo call >> {log}\ncase "$*" in *-fopenmp*|*-march*) exit 1;; esac\nexec {real} "$@"'
    monkeypatch.setenv("CXX", script(tmp_path / "simple-c++", simple))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graphs, parts = graphs_of(RAGGED), Parts(16)
    steps = [3] * len(RAGGED)
    one = parts.by_kernel(graphs, graphs.features, steps)
    assert one is not None
    assert_equal(one * graphs.real, parts.plainly(graphs, graphs.features, steps) * graphs.real)
    (built,) = (tmp_path / "cache" / "driple").iterdir()
    assert built.suffix == ".so"
    library_module._library.cache_clear()  # as another process would
    assert library() is not None
    assert log.read_text().splitlines() == ["call"] * 3  # with both, without one, without either; then never again


def test_somebody_elses_library_is_not_loaded(
    needs_kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: Any = library()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "driple").mkdir()
    shutil.copy(ours._name, tmp_path / "driple")
    mine = os.getuid()
    library_module._library.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: mine + 1)
        assert library() is None
    library_module._library.cache_clear()
    assert library() is not None
