"""What a model from outside is: how it is made, what it is called with, what its loss is, and what becomes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dorylax.program.model.loss import cross_entropy

F, H, C, D, R = 5, 4, 3, 2, 3
"""Features, hidden units, classes, attributes of an edge, kinds of edges."""

SPACES: dict[str, tuple[str, tuple[int, ...], str]] = {
    "edge_attr": ("edge", (D,), "real"),
    "edge_type": ("edge", (), "kind"),
    "pos": ("vertex", (3,), "real"),
    "lap_pe": ("vertex", (H,), "real"),
    "known": ("vertex", (), "class"),
    "neighbours": ("vertex", (3,), "vertex"),
    "teacher": ("vertex", (C,), "real"),
}
"""Further inputs, by the name that a model gives them: whose rows they are, the shape of one, and what it holds."""

LABELS: dict[str, tuple[tuple[int, ...], str]] = {
    "classes": ((), "class"),
    "indicators": ((C,), "bit"),
    "value": ((), "real"),
    "class and value": ((2,), "positive"),
}


@dataclasses.dataclass(frozen=True)
class Outside:
    """A model as its authors would write it.

    Attributes:
        make: gives the model, or `(function, parameters)`.
        paper: where its structure is from.
        inputs: names of `SPACES`: what it takes besides features.
        labels: a name of `LABELS`.
        loss: of a row.
        refused: what the error says, if it cannot be split.
        rounding: of the narrowest arithmetic that the model asks for itself; 0 if it computes in its data's dtype.
    """

    make: Callable[[], Any]
    paper: str
    inputs: tuple[str, ...] = ()
    labels: str = "classes"
    loss: Callable[[Any, Any], Any] = cross_entropy
    refused: str | None = None
    rounding: float = 0.0


def drawn(holds: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values of one of the sorts above, the first axis for rows."""
    if holds in ("real", "positive"):
        values = rng.normal(size=shape)
        return np.abs(values) + 0.1 if holds == "positive" else values
    if holds == "class":
        classes = rng.integers(0, C, shape)
        return np.where(rng.random(shape) < 0.5, classes, -1).astype(np.int32)
    limit = {"kind": R, "bit": 2, "vertex": shape[0]}[holds]
    return rng.integers(0, limit, shape).astype(np.float32 if holds == "bit" else np.int32)
