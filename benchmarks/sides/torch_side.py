"""GCN in plain torch: a CSR matrix with a hand-written backward, with and without dorylax's algebra done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harness.measure import Stopwatch
from sides.problem import Problem
from sides.torch_training import prepare_torch, train_torch


def train(problem: Problem, epochs: int, *, algebra: bool) -> dict[str, Any]:
    """One-time seconds, and losses and seconds of a warm-up and `epochs` epochs.

    Args:
        problem: of model "gcn".
        epochs: that are timed.
        algebra: whether Â·X is computed once, so that epochs gather only rows as wide as the classes.
    """
    if problem.model != "gcn":
        raise SystemExit(f"the torch sides are written for the model gcn, not for {problem.model}")
    prepare_torch()
    watch = Stopwatch()
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
        out: torch.Tensor = Multiply.apply(torch.relu(h + b0) @ w1) + b1
        return out

    losses, seconds = train_torch(forward, [w0, b0, w1, b1], problem, epochs)
    return {"setup": watch.seconds, "losses": losses, "seconds": seconds}


def _normalised(problem: Problem) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2 in CSR with int32 indices, MKL's own index type."""
    num_vertices, degrees = problem.num_vertices, np.diff(problem.offsets)
    rows = np.repeat(np.arange(num_vertices, dtype=np.int32), degrees)
    # Each row's loop goes in front of its entries.
    columns = np.insert(problem.neighbours, problem.offsets[:-1], np.arange(num_vertices, dtype=np.int32))
    rows = np.insert(rows, problem.offsets[:-1], np.arange(num_vertices, dtype=np.int32))
    scale = (1 / np.sqrt(degrees + 1.0)).astype(np.float32)
    values = scale[rows] * scale[columns]
    offsets = (problem.offsets + np.arange(num_vertices + 1)).astype(np.int32)
    arrays = (torch.from_numpy(array) for array in (offsets, columns, values))
    return torch.sparse_csr_tensor(*arrays, (num_vertices, num_vertices), check_invariants=False)
