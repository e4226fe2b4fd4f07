"""Training by torch, which its sides share: all threads, Adam, cross-entropy over the training vertices."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable

import torch

from harness.measure import run_epochs
from sides.problem import LEARNING_RATE, Problem


def prepare_torch() -> None:
    """Uses all cores."""
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.set_num_threads(os.cpu_count() or 1)


def train_torch(
    forward: Callable[[], torch.Tensor], parameters: Iterable[torch.Tensor], problem: Problem, epochs: int
) -> tuple[list[float], list[float]]:
    """Losses and seconds of a warm-up and `epochs` epochs; `forward` gives the outputs `[V, C]`."""
    parameters = list(parameters)
    device = parameters[0].device
    labels, mask = torch.from_numpy(problem.labels).long().to(device), torch.from_numpy(problem.train_mask).to(device)
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)

    def step() -> float:
        optimizer.zero_grad()
        out = forward()
        loss = torch.nn.functional.cross_entropy(out[mask], labels[mask])
        loss.backward()
        optimizer.step()
        return loss.item()

    return run_epochs(step, epochs)
