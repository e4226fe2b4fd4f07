"""What every side trains: a graph, features, labels and maybe initial parameters, in a file that each side reads itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LEARNING_RATE = 0.01  # Adam with its usual constants, without weight decay
HEADS = 8

Layers = list[dict[str, np.ndarray]]


class Problem(NamedTuple):
    """A symmetric graph without self-loops, its data, and a model of two layers.

    Attributes:
        offsets: int64 `[V+1]`.
        neighbours: int32 `[E]`.
        features: float32 `[V, F]`.
        labels: int32 `[V]`, in 0 … C-1.
        masks: bool `[3, V]`, of training, validation and test vertices.
        num_classes: C.
        model: "gcn", "gat", "sage" or "gin"; empty where each side chooses.
        layers: Initial parameters by name, layer by layer, kernels `[fan-in, fan-out]`; empty if each side draws them.
    """

    offsets: np.ndarray
    neighbours: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    masks: np.ndarray
    num_classes: int
    model: str = ""
    layers: Layers = []  # noqa: RUF012  (never changed)

    @property
    def num_vertices(self) -> int:
        """V."""
        return len(self.labels)

    def dataset(self, **options: Any) -> Any:
        """Return the problem as a data set of dorylax."""
        from dorylax.graph.dataset import Dataset
        from dorylax.graph.graph import Graph

        graph = Graph.from_csr(self.offsets, self.neighbours)
        return Dataset("problem", graph, self.features, self.labels, self.num_classes, *self.masks, **options)


_ARRAYS = ("offsets", "neighbours", "features", "labels", "masks", "num_classes", "model")


def write(folder: Path, problem: Problem) -> None:
    """Writes a problem into a folder."""
    arrays = {name: getattr(problem, name) for name in _ARRAYS}
    arrays |= {f"{depth}.{name}": value for depth, layer in enumerate(problem.layers) for name, value in layer.items()}
    np.savez(folder / "problem.npz", **arrays)


def read(folder: Path) -> Problem:
    """Reads a problem into memory."""
    with np.load(folder / "problem.npz") as file:
        found = {name: file[name] for name in file.files}
    layers: Layers = []
    for name in [name for name in found if name[0].isdigit()]:
        depth, _, part = name.partition(".")
        layers += [{} for _ in range(int(depth) + 1 - len(layers))]
        layers[int(depth)][part] = found.pop(name)
    return Problem(**found | {"num_classes": int(found["num_classes"]), "model": str(found["model"]), "layers": layers})


def parameters(model: str, widths: tuple[int, int, int], *, degree: float) -> Layers:
    """Initial parameters: matrices by Glorot and Bengio's uniform law, biases 0.

    Args:
        model: "gcn", "gat" (whose hidden layer has `HEADS` heads of `widths[1] / HEADS` columns, its last layer one),
            "sage" or "gin".
        widths: Of features, hidden rows and classes.
        degree: Mean degree, which divides the matrices that GIN multiplies sums of neighbours with, so that training does
            not explode.
    """
    rng = np.random.default_rng(0)

    def glorot(*shape: int) -> np.ndarray:
        bound = np.sqrt(6 / (shape[-2] + shape[-1]))
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    def layer(fan_in: int, fan_out: int, heads: int) -> dict[str, np.ndarray]:
        bias = np.zeros(fan_out, np.float32)
        if model == "gcn":
            return {"kernel": glorot(fan_in, fan_out), "bias": bias}
        if model == "sage":
            return {"own": glorot(fan_in, fan_out), "neighbours": glorot(fan_in, fan_out), "bias": bias}
        if model == "gin":
            hidden = {"hidden": glorot(fan_in, widths[1]) / np.float32(degree)}
            biases = {"hidden_bias": np.zeros(widths[1], np.float32), "out_bias": bias}
            return hidden | {"out": glorot(widths[1], fan_out)} | biases
        shape = (heads, fan_out // heads)
        kernel = glorot(fan_in, fan_out)
        return {"kernel": kernel, "source": glorot(*shape), "target": glorot(*shape), "bias": bias}

    return [layer(widths[0], widths[1], HEADS), layer(widths[1], widths[2], 1)]
