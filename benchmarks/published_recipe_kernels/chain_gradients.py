"""The published chain, GCN layer and GRU cell in turn, in plain torch with its gradients written out.

Where there is no compiler for the kernel. What autograd would keep and make anew at every step lies on one tape here,
products of one input are one product, and each sum is taken in as few passes as torch has for it. With state x, layer
W and b, and a cell whose input is x and hidden state y:

    y = leaky(A' (x W) + b)
    r, z = sigmoid(x [W_ir, W_iz] + y [W_hr, W_hz] + biases),   h = y W_hn + b_hn,   n = tanh(x W_in + b_in + r h)
    x' = n + z (y - n)

Only the steps with the same layer are here, from the second on, and only where all graphs take as many.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from driple.inspector.network.batching.dense import DenseGraphs
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.layers.gcn import GcnLayer
from driple.inspector.network.layers.gru import StateCell
from published_recipe_kernels.buffer_pool import borrow
from published_recipe_kernels.kernel_call import plain_floats, records
from published_recipe_kernels.pooled_function import Taped

_SLOPE = 0.01
_SPARSE = 0.1
"""Share of A' that is not zero up to which a sparse product is the faster one."""
_PARTS = 6
"""Of the tape for a step, in states: r and z, n, h, y, and the next x."""
_aten = torch.ops.aten


def chain_in_place(
    graphs: Graphs, x: Tensor, first: object, other: object, cell: object, steps: Sequence[int]
) -> Tensor | None:
    """States after the last step [B, N, hidden], or None where this does not serve; arguments as `chain_by_kernel`."""
    if not (isinstance(first, GcnLayer) and isinstance(other, GcnLayer) and isinstance(cell, StateCell)):
        return None
    if cell.manner != "message" or len(set(steps)) > 1 or steps[0] < 2 or not isinstance(graphs, DenseGraphs):
        return None
    gru = cell.cell
    weights = (other.weight, other.bias, gru.weight_ih, gru.weight_hh, gru.bias_ih, gru.bias_hh)
    if other.weight.shape != (cell.hidden, cell.hidden) or not plain_floats(x, graphs.adjacency, *weights):
        return None
    x = cell(x, first(graphs, x))
    batch, tensors = _Batch(steps[0] - 1, x.numel()), (x.contiguous(), _summing(graphs), *weights)
    result: Tensor = Taped.apply(batch, *tensors) if records(x, *weights) else batch.forward(tensors, None)
    return result


@dataclass(frozen=True)
class _Batch:
    """So many steps, with tensors x [B, N, hidden], A' and the weights; see Taped."""

    steps: int
    numbers: int
    """Of x."""

    def tape(self) -> Tensor:
        return borrow(self.steps * _PARTS * self.numbers)

    def forward(self, tensors: Sequence[Tensor], tape: Tensor | None) -> Tensor:
        x, norm, weight, bias, of_input, of_hidden, input_bias, hidden_bias = (t.detach() for t in tensors)
        hidden = x.shape[-1]
        rows, gates = x.numel() // hidden, 2 * hidden
        merged = _merged(weight, of_input)
        biases = torch.cat([torch.zeros_like(bias), input_bias[gates:], (input_bias + hidden_bias)[:gates]])
        to_gates, to_candidate = of_hidden[:gates].t(), of_hidden[gates:].t()
        products = x.new_empty(rows, 4 * hidden)
        state = x.view(rows, hidden)
        # Without a tape, two places take turns: the next state is written while the last is read.
        kept = x.new_empty(2 * _PARTS * x.numel()) if tape is None else tape
        for step in range(self.steps):
            rz, n, h, y, after = _places(kept, step % 2 if tape is None else step, rows, hidden)
            torch.addmm(biases, state, merged, out=products)
            _sum(norm, products[:, :hidden], y)
            _aten.leaky_relu_(y.add_(bias), _SLOPE)
            torch.addmm(products[:, gates:], y, to_gates, out=rz).sigmoid_()
            torch.addmm(hidden_bias[gates:], y, to_candidate, out=h)
            _tanh_(torch.addcmul(products[:, hidden:gates], rz[:, :hidden], h, out=n))
            state = torch.lerp(n, y, rz[:, hidden:], out=after)
        return state.view_as(x).clone()  # the tape is for others afterwards

    def backward(self, up: Tensor, tensors: Sequence[Tensor], tape: Tensor, wants_x: bool) -> list[Tensor | None]:
        x, norm, weight, _, of_input, of_hidden, _, _ = tensors
        hidden = x.shape[-1]
        rows, gates = x.numel() // hidden, 2 * hidden
        merged = _merged(weight, of_input).t()
        # Gradients of x W, of n, r and z before their bends, and of h, side by side: the first four are those of what x
        # is multiplied with, the last three of what y is.
        down = x.new_empty(rows, 5 * hidden)
        of_layer, of_n, of_r, of_z, of_h = down.split(hidden, dim=1)
        of_x, of_y = down[:, : 4 * hidden], down[:, gates:]
        summed, part, dy = (x.new_empty(rows, hidden) for _ in range(3))
        found_merged, found_hidden = x.new_zeros(hidden, 4 * hidden), x.new_zeros(3 * hidden, hidden)
        found_biases, found_bias = x.new_zeros(5 * hidden), x.new_zeros(hidden)
        up = up.reshape(rows, hidden).clone()
        for step in reversed(range(self.steps)):
            rz, n, h, y, _ = _places(tape, step, rows, hidden)
            before = _places(tape, step - 1, rows, hidden)[-1] if step else x.view(rows, hidden)
            r, z = rz.split(hidden, dim=1)
            torch.mul(torch.sub(y, n, out=part), up, out=part)
            _aten.sigmoid_backward.grad_input(part, z, grad_input=of_z)
            torch.mul(up, z, out=dy)
            _aten.tanh_backward.grad_input(torch.sub(up, dy, out=part), n, grad_input=of_n)
            torch.mul(of_n, r, out=of_h)
            _aten.sigmoid_backward.grad_input(torch.mul(of_n, h, out=part), r, grad_input=of_r)
            dy.addmm_(of_y, of_hidden)
            _aten.leaky_relu_backward.grad_input(dy, y, _SLOPE, True, grad_input=summed)
            _sum(norm, summed, part)
            of_layer.copy_(part)
            found_merged.addmm_(before.t(), of_x)
            found_hidden.addmm_(of_y.t(), y)
            found_biases += down.sum(0)
            found_bias += summed.sum(0)
            torch.mm(of_x, merged, out=up)
        d_weight, d_n, d_rz = found_merged.split([hidden, hidden, gates], dim=1)
        _, b_n, b_rz, b_h = found_biases.split([hidden, hidden, gates, hidden])
        of_gru = [torch.cat([d_rz, d_n], dim=1).t(), found_hidden, torch.cat([b_rz, b_n]), torch.cat([b_rz, b_h])]
        return [up.view_as(x) if wants_x else None, None, d_weight, found_bias, *of_gru]


def _summing(graphs: DenseGraphs) -> Tensor:
    """A' as what sums fastest: [B, N, N], or of few edges one sparse matrix [B N, B N]. It is symmetric, either way."""
    norm = graphs.normalised
    if int(norm.count_nonzero()) > _SPARSE * norm.numel():
        return norm
    batch, nodes, _ = norm.shape
    graph, row, column = norm.nonzero(as_tuple=True)
    begins = torch.zeros(batch * nodes + 1, dtype=torch.int64)
    begins[1:] = torch.bincount(graph * nodes + row, minlength=batch * nodes).cumsum(0)
    size, values = (batch * nodes, batch * nodes), norm[graph, row, column]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*CSR.*beta.*")
        return torch.sparse_csr_tensor(begins, graph * nodes + column, values, size, check_invariants=False)


def _sum(norm: Tensor, x: Tensor, out: Tensor) -> None:
    """A' x of every graph, rows of all [B N, hidden] to as many."""
    if norm.layout is torch.sparse_csr:
        torch.mm(norm, x, out=out)
    else:
        shape = (*norm.shape[:2], x.shape[1])
        torch.bmm(norm, x.view(shape), out=out.view(shape))


def _tanh_(x: Tensor) -> Tensor:
    """torch's own takes five times as long."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def _merged(weight: Tensor, of_input: Tensor) -> Tensor:
    """[hidden, 4 hidden]: what x is multiplied with, for the layer, n, r and z."""
    gates = 2 * len(weight)
    return torch.cat([weight, of_input[gates:].t(), of_input[:gates].t()], dim=1)


def _places(tape: Tensor, step: int, rows: int, hidden: int) -> tuple[Tensor, ...]:
    """Of a step: r and z [rows, 2 hidden], n, h, y and the next x [rows, hidden]."""
    size = rows * hidden
    own = tape[step * _PARTS * size : (step + 1) * _PARTS * size]
    return own[: 2 * size].view(rows, 2 * hidden), *own[2 * size :].view(4, rows, hidden).unbind()
