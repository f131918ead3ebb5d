"""The recurrent cell after each layer: one cell, the same weights after every layer.

With gates r, z and candidate n of a GRU whose input is i and hidden state h:

    r = sigmoid(W_ir i + b_ir + W_hr h + b_hr),   z = sigmoid(W_iz i + b_iz + W_hz h + b_hz)
    n = tanh(W_in i + b_in + r (W_hn h + b_hn)),  x' = (1 - z) n + z h

`message`, as published: i = the node's state x, h = the layer's output y. The state has no way past the cell, and is
forgotten over many layers. `state`: i = y, h = x, so that with z near 1 a state is carried unchanged.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad


class StateCell(nn.Module):  # type: ignore[misc]
    """State x and the layer's output y, both [..., hidden], to the next state [..., hidden].

    x may be narrower, as features before a first layer are: it is filled up with zeros, as published.
    """

    def __init__(self, manner: str, hidden: int) -> None:
        """Take `message` or `state`."""
        super().__init__()
        self.manner = manner
        self.hidden = hidden
        self.cell = nn.GRUCell(hidden, hidden)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x.shape[-1] < self.hidden:
            x = pad(x, (0, self.hidden - x.shape[-1]))
        given, kept = (x, y) if self.manner == "message" else (y, x)
        rows = (-1, self.hidden)
        after: Tensor = self.cell(given.reshape(rows), kept.reshape(rows))
        return after.view(y.shape)
