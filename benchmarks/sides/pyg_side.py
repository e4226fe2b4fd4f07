"""PyTorch Geometric, as its users write it: transform before gather, CSR where its layers take it, cached normalisation."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from harness.measure import Stopwatch
from sides.problem import HEADS, Problem
from sides.torch_training import prepare_torch, train_torch


def train(problem: Problem, epochs: int, *, device: str = "cpu") -> dict[str, Any]:
    """One-time seconds, and losses and seconds of a warm-up and `epochs` epochs, on one of torch's devices."""
    prepare_torch()
    watch = Stopwatch()
    adjacency = watch.time("graph", lambda: (_edges if problem.model == "gat" else _matrix)(problem).to(device))
    x = torch.from_numpy(problem.features).to(device)
    first, last = (
        _layer(problem.model, layer, heads).to(device) for layer, heads in zip(problem.layers, (HEADS, 1), strict=True)
    )
    activation = torch.nn.functional.elu if problem.model == "gat" else torch.relu

    def forward() -> torch.Tensor:
        return last(activation(first(x, adjacency)), adjacency)

    losses, seconds = train_torch(forward, [*first.parameters(), *last.parameters()], problem, epochs)
    return {"setup": watch.seconds, "losses": losses, "seconds": seconds}


def _matrix(problem: Problem) -> torch.Tensor:
    offsets, columns = torch.from_numpy(problem.offsets), torch.from_numpy(problem.neighbours).long()
    ones = torch.ones(len(columns))
    return torch.sparse_csr_tensor(offsets, columns, ones, (problem.num_vertices,) * 2, check_invariants=False)


def _edges(problem: Problem) -> torch.Tensor:
    degrees = torch.from_numpy(problem.offsets).diff()
    targets = torch.repeat_interleave(torch.arange(problem.num_vertices), degrees)
    return torch.stack([torch.from_numpy(problem.neighbours).long(), targets])


def _layer(model: str, values: dict[str, Any], heads: int) -> torch.nn.Module:
    if model == "gin":
        hidden, out = torch.nn.Linear(*values["hidden"].shape), torch.nn.Linear(*values["out"].shape)
        conv = GINConv(torch.nn.Sequential(hidden, torch.nn.ReLU(), out))  # which draws parameters anew
        for module, name in ((hidden, "hidden"), (out, "out")):
            module.weight.data = torch.tensor(values[name].T.copy())
            module.bias.data = torch.tensor(values[f"{name}_bias"])
        return conv
    if model == "sage":
        conv = SAGEConv(*values["own"].shape)
        conv.lin_r.weight.data = torch.tensor(values["own"].T.copy())
        conv.lin_l.weight.data = torch.tensor(values["neighbours"].T.copy())
        conv.lin_l.bias.data = torch.tensor(values["bias"])
        return conv
    if model == "gat":
        conv = GATConv(values["kernel"].shape[0], values["source"].shape[1], heads=heads)
        conv.att_src.data, conv.att_dst.data = (
            torch.tensor(values["source"])[None],
            torch.tensor(values["target"])[None],
        )
    else:
        conv = GCNConv(*values["kernel"].shape, cached=True)
    conv.lin.weight.data, conv.bias.data = torch.tensor(values["kernel"].T.copy()), torch.tensor(values["bias"])
    return conv
