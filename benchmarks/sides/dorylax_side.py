"""dorylax, as its users run it: a model from `dorylax.layers` and a `Trainer`."""

from __future__ import annotations

from typing import Any

import optax
from flax import nnx

from dorylax.layers import GAT, GCN, GIN, GraphSAGE
from dorylax.trainer import Trainer
from dorylax.trainer.vertex_order import in_order
from harness.measure import Stopwatch
from sides.problem import HEADS, LEARNING_RATE, Problem

_NAMES = {
    "gat": {"source": "attention_source", "target": "attention_target"},
    "gin": {"hidden": "hidden.kernel", "hidden_bias": "hidden.bias", "out": "out.kernel", "out_bias": "out.bias"},
    "sage": {"own": "kernel_self", "neighbours": "kernel_neighbours"},
}
"""By model: the names of parameters that are other than the problem's."""


def model_of(problem: Problem) -> Any:
    """The model with the problem's parameters, without dropout: no two libraries drop the same elements."""
    first, width = problem.layers[0], problem.features.shape[1]
    rest: dict[str, Any] = {"dropout": 0.0, "rngs": nnx.Rngs(0)}
    if problem.model == "gat":
        rest |= {"heads": HEADS, "attention_dropout": 0.0}
        model: Any = GAT(width, first["source"].shape[1], problem.num_classes, **rest)
    else:
        kind, hidden = {"gcn": (GCN, "kernel"), "gin": (GIN, "hidden"), "sage": (GraphSAGE, "own")}[problem.model]
        model = kind(width, first[hidden].shape[1], problem.num_classes, **rest)
    for conv, layer in zip(model.convs, problem.layers, strict=True):
        for name, value in layer.items():
            owner, (*path, leaf) = conv, _NAMES.get(problem.model, {}).get(name, name).split(".")
            for part in path:
                owner = getattr(owner, part)
            getattr(owner, leaf)[...] = value
    return model


def train(problem: Problem, epochs: int, *, order: str = "community", **options: Any) -> dict[str, Any]:
    """One-time seconds, and losses and seconds of a warm-up and `epochs` epochs."""
    watch = Stopwatch()
    data = watch.time("graph", problem.dataset)
    data, watch.seconds["order"] = in_order(data, "community" if order == "community" else "given")
    count = {"epochs": epochs + 1, "eval_every": epochs + 1}
    model, optimizer = model_of(problem), optax.adam(LEARNING_RATE)
    result = Trainer(model, data, optimizer=optimizer, order="given", **count, **options).fit()
    epoch_seconds = [record.seconds for record in result.history]
    watch.seconds["hoist"] = result.timings.train - sum(epoch_seconds)
    watch.seconds["compile"] = result.timings.compile
    return {"setup": watch.seconds, "losses": [record.loss for record in result.history], "seconds": epoch_seconds}
