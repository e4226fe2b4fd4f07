"""Peers that train with torch: PyTorch Geometric as its users write it, and a GCN in plain torch.

PyG transforms before it gathers, in CSR where its layers take it, with cached normalisation. Plain torch has a CSR matrix
with a hand-written backward, with or without dorylax's algebra done by hand.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from harness.measure import Stopwatch, timed
from sides.problem import HEADS, LEARNING_RATE, Problem


def train(problem: Problem, epochs: int, *, side: str, device: str = "cpu") -> dict[str, Any]:
    """One-time seconds, and losses and seconds of a warm-up and `epochs` epochs.

    Args:
        problem: The problem; of model "gcn" unless `side` is "pyg".
        epochs: Number of timed epochs.
        side: "pyg", "torch", or "torch-algebra", which computes Â·X once, so that epochs gather only rows as wide as the
            classes.
        device: One of torch's.
    """
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.set_num_threads(os.cpu_count() or 1)
    watch = Stopwatch()
    if side == "pyg":
        forward, parameters = _pyg(problem, watch, device)
    else:
        forward, parameters = _plain(problem, watch, algebra=side == "torch-algebra")
    labels, mask = torch.from_numpy(problem.labels).long().to(device), torch.from_numpy(problem.masks[0]).to(device)
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward()[mask], labels[mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    seconds = timed(step, epochs + 1)
    return {"setup": watch.seconds, "losses": losses, "seconds": seconds}


def csr(problem: Problem) -> torch.Tensor:
    """The adjacency matrix, with ones."""
    columns = torch.from_numpy(problem.neighbours).long()
    offsets, size = torch.from_numpy(problem.offsets), (problem.num_vertices,) * 2
    return torch.sparse_csr_tensor(offsets, columns, torch.ones(len(columns)), size, check_invariants=False)


Forward = Callable[[], torch.Tensor]


def _pyg(problem: Problem, watch: Stopwatch, device: str) -> tuple[Forward, Iterable[torch.Tensor]]:
    adjacency = watch.time("graph", lambda: (_edges if problem.model == "gat" else csr)(problem).to(device))
    x = torch.from_numpy(problem.features).to(device)
    first, last = (_layer(problem.model, *both).to(device) for both in zip(problem.layers, (HEADS, 1), strict=True))
    activation = torch.nn.functional.elu if problem.model == "gat" else torch.relu
    return lambda: last(activation(first(x, adjacency)), adjacency), [*first.parameters(), *last.parameters()]


def _edges(problem: Problem) -> torch.Tensor:
    targets = torch.repeat_interleave(torch.arange(problem.num_vertices), torch.from_numpy(problem.offsets).diff())
    return torch.stack([torch.from_numpy(problem.neighbours).long(), targets])


def _layer(model: str, values: dict[str, np.ndarray], heads: int) -> torch.nn.Module:
    from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

    def given(name: str) -> torch.Tensor:
        return torch.tensor(values[name].T.copy())

    if model == "gin":
        hidden, out = torch.nn.Linear(*values["hidden"].shape), torch.nn.Linear(*values["out"].shape)
        conv = GINConv(torch.nn.Sequential(hidden, torch.nn.ReLU(), out))  # which draws parameters anew
        for module, name in ((hidden, "hidden"), (out, "out")):
            module.weight.data, module.bias.data = given(name), given(f"{name}_bias")
        return conv
    if model == "sage":
        conv = SAGEConv(*values["own"].shape)
        conv.lin_r.weight.data, conv.lin_l.weight.data = given("own"), given("neighbours")
        conv.lin_l.bias.data = given("bias")
        return conv
    if model == "gat":
        conv = GATConv(values["kernel"].shape[0], values["source"].shape[1], heads=heads)
        conv.att_src.data, conv.att_dst.data = (torch.tensor(values[name])[None] for name in ("source", "target"))
    else:
        conv = GCNConv(*values["kernel"].shape, cached=True)
    conv.lin.weight.data, conv.bias.data = given("kernel"), given("bias")
    return conv


def _plain(problem: Problem, watch: Stopwatch, *, algebra: bool) -> tuple[Forward, Iterable[torch.Tensor]]:
    if problem.model != "gcn":
        raise SystemExit(f"the torch sides are written for the model gcn, not for {problem.model}")
    a = watch.time("graph", lambda: _normalised(problem))

    class Multiply(torch.autograd.Function):
        """Â·x; Â is symmetric, so the gradient is Â·dy, without the transposition that autograd would do each time."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            return a @ x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
            return a @ gradient.contiguous()

    x = torch.from_numpy(problem.features)
    (w0, b0), (w1, b1) = (
        [torch.tensor(layer[name], requires_grad=True) for name in ("kernel", "bias")] for layer in problem.layers
    )
    if algebra:
        x = watch.time("hoist", lambda: a @ x)

    def forward() -> torch.Tensor:
        h = x @ w0 if algebra else Multiply.apply(x @ w0)
        return Multiply.apply(torch.relu(h + b0) @ w1) + b1

    return forward, [w0, b0, w1, b1]


def _normalised(problem: Problem) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2 in CSR with int32 indices, MKL's own index type."""
    degrees, own = np.diff(problem.offsets), np.arange(problem.num_vertices, dtype=np.int32)
    # Each row's loop goes in front of its entries.
    columns = np.insert(problem.neighbours, problem.offsets[:-1], own)
    rows = np.insert(np.repeat(own, degrees), problem.offsets[:-1], own)
    scale = (1 / np.sqrt(degrees + 1.0)).astype(np.float32)
    offsets = (problem.offsets + np.arange(problem.num_vertices + 1)).astype(np.int32)
    arrays = (torch.from_numpy(array) for array in (offsets, columns, scale[rows] * scale[columns]))
    return torch.sparse_csr_tensor(*arrays, (problem.num_vertices,) * 2, check_invariants=False)
