"""The published inspector, from a checkout of its authors' repository, as a peer for benchmarks.

Two of the packages that it imports are never used on this path, and its GCN layer is there only as bytecode of an old
Python: where they are missing, empty modules and a layer after the published formula stand in. That layer, too,
normalises the adjacency in every call, but by the cheapest means, so as not to make the peer slower than it is.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

UNUSED = {
    "torch_geometric": (),
    "torch_geometric.nn": ("global_mean_pool", "global_max_pool", "GlobalAttention"),
    "torch_scatter": ("scatter",),
}


class PublishedGcn(nn.Module):  # type: ignore[misc]
    """leaky(D^-1/2 (A + I) D^-1/2 (x W) + b)."""

    def __init__(self, in_features: int, out_features: int, device: str = "cpu") -> None:
        super().__init__()
        bound = out_features**-0.5
        self.W = nn.Parameter(torch.empty(in_features, out_features, device=device).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.empty(out_features, device=device).uniform_(-bound, bound))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        with_self = adjacency + torch.eye(adjacency.shape[1])
        scale = with_self.sum(-1, keepdim=True).rsqrt()
        return leaky_relu(torch.bmm(with_self * scale * scale.transpose(1, 2), x @ self.W) + self.b)


def published_network(checkout: Path, features: int, hidden: int, outputs: int) -> Any:
    """Their network with their choices: GCN and GRU N/2 times, set2set, three linear layers.

    Called with features [B, N, features] and adjacency [B, N, N].
    """
    training = checkout / "training"
    if not (training / "models/pytorch/gnn_framework.py").exists():
        raise SystemExit(f"{checkout}: no checkout of the authors' repository (training/models/pytorch is missing)")
    if str(training) not in sys.path:
        sys.path.insert(0, str(training))
    for name, members in UNUSED.items():
        try:
            importlib.import_module(name)
        except ImportError:
            stand_in = ModuleType(name)
            for member in members:
                setattr(stand_in, member, None)
            sys.modules[name] = stand_in
    layer: Any = PublishedGcn
    if (training / "models/pytorch/gcn/layer.py").exists():
        layer = importlib.import_module("models.pytorch.gcn.layer").GCNLayer
    framework = importlib.import_module("models.pytorch.gnn_framework")
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does
        return framework.GNN(
            nfeat=features,
            nhid=hidden,
            nodes_out=0,
            graph_out=outputs,
            dropout=0.0,
            conv_layers=lambda adjacency: adjacency.shape[1] // 2,
            fc_layers=3,
            first_conv_descr={"layer_type": layer, "args": {}},
            middle_conv_descr={"layer_type": layer, "args": {}},
            final_activation="LeakyReLU",
            gru=True,
            fixed=True,
            variable=True,
            transfer=False,
        )
