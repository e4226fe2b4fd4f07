"""What every side trains: a graph, features, labels and initial parameters, in files that each side reads for itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LEARNING_RATE = 0.01  # Adam with its usual constants, without weight decay
HEADS = 8


class Problem(NamedTuple):
    """Two layers on a symmetric graph without self-loops.

    Attributes:
        model: "gcn", "gat", "sage" or "gin".
        offsets: int64 `[V+1]`.
        neighbours: int32 `[E]`.
        features: float32 `[V, F]`.
        labels: int32 `[V]`.
        train_mask: bool `[V]`.
        num_classes: C.
        layers: initial parameters by name, layer by layer; a kernel is `[fan-in, fan-out]`.
    """

    model: str
    offsets: np.ndarray
    neighbours: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    train_mask: np.ndarray
    num_classes: int
    layers: list[dict[str, np.ndarray]]

    @property
    def num_vertices(self) -> int:
        """V."""
        return len(self.labels)


_ARRAYS = ("offsets", "neighbours", "features", "labels", "train_mask")


def write(folder: Path, problem: Problem) -> None:
    """Writes a problem into an empty folder."""
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", getattr(problem, name))
    for depth, layer in enumerate(problem.layers):
        np.savez(folder / f"layer-{depth}.npz", **layer)
    facts = {"model": problem.model, "num_classes": problem.num_classes, "num_layers": len(problem.layers)}
    (folder / "problem.json").write_text(json.dumps(facts))


def read(folder: Path) -> Problem:
    """Reads a problem into memory."""
    facts = json.loads((folder / "problem.json").read_text())
    arrays = {name: np.load(folder / f"{name}.npy") for name in _ARRAYS}
    layers = [dict(np.load(folder / f"layer-{depth}.npz")) for depth in range(facts["num_layers"])]
    return Problem(facts["model"], **arrays, num_classes=facts["num_classes"], layers=layers)


def parameters(
    model: str, widths: tuple[int, int, int], *, degree: float, seed: int = 0
) -> list[dict[str, np.ndarray]]:
    """Initial parameters: matrices by Glorot and Bengio's uniform law, biases 0.

    Args:
        model: "gcn", "gat" (whose hidden layer has `HEADS` heads of `widths[1] / HEADS` columns, its last layer one),
            "sage" or "gin".
        widths: of features, hidden rows and classes.
        degree: mean degree, by which the matrices that GIN multiplies sums of neighbours with are divided: training does
            not explode then.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)

    def glorot(*shape: int) -> np.ndarray:
        bound = np.sqrt(6 / (shape[-2] + shape[-1]))
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    def layer(fan_in: int, fan_out: int, heads: int) -> dict[str, Any]:
        bias = np.zeros(fan_out, np.float32)
        if model == "gcn":
            return {"kernel": glorot(fan_in, fan_out), "bias": bias}
        if model == "sage":
            return {"own": glorot(fan_in, fan_out), "neighbours": glorot(fan_in, fan_out), "bias": bias}
        if model == "gin":
            hidden = widths[1]
            return {
                "hidden": glorot(fan_in, hidden) / np.float32(degree),
                "hidden_bias": np.zeros(hidden, np.float32),
                "out": glorot(hidden, fan_out),
                "out_bias": bias,
            }
        per_head = fan_out // heads
        return {
            "kernel": glorot(fan_in, fan_out),
            "source": glorot(heads, per_head),
            "target": glorot(heads, per_head),
            "bias": bias,
        }

    return [layer(widths[0], widths[1], HEADS), layer(widths[1], widths[2], 1)]
