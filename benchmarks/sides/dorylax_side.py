"""dorylax, as its users run it: a model from `dorylax.layers` and a `Trainer`."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.layers import GAT, GCN, GIN, GraphSAGE
from dorylax.trainer import Trainer
from dorylax.trainer.vertex_order import in_order
from harness.measure import Stopwatch
from sides.problem import HEADS, LEARNING_RATE, Problem


def model_of(problem: Problem) -> Any:
    """The model with the problem's parameters, without dropout: no two libraries drop the same elements."""
    first, last = problem.layers
    width = problem.features.shape[1]
    classes, rngs = problem.num_classes, nnx.Rngs(0)
    if problem.model == "gat":
        per_head = first["source"].shape[1]
        model = GAT(width, per_head, classes, heads=HEADS, dropout=0.0, attention_dropout=0.0, rngs=rngs)
        names = {"kernel": "kernel", "source": "attention_source", "target": "attention_target", "bias": "bias"}
    elif problem.model == "gin":
        model = GIN(width, first["hidden"].shape[1], classes, dropout=0.0, rngs=rngs)
        names = {"hidden": "hidden.kernel", "hidden_bias": "hidden.bias", "out": "out.kernel", "out_bias": "out.bias"}
    elif problem.model == "sage":
        model = GraphSAGE(width, first["own"].shape[1], classes, dropout=0.0, rngs=rngs)
        names = {"own": "kernel_self", "neighbours": "kernel_neighbours", "bias": "bias"}
    else:
        model = GCN(width, first["kernel"].shape[1], classes, dropout=0.0, rngs=rngs)
        names = {"kernel": "kernel", "bias": "bias"}
    for conv, layer in zip(model.convs, (first, last), strict=True):
        for name, value in layer.items():
            owner = conv
            *path, leaf = names[name].split(".")
            for part in path:
                owner = getattr(owner, part)
            getattr(owner, leaf)[...] = value
    return model


def train(problem: Problem, epochs: int, *, order: str = "community", **options: Any) -> dict[str, Any]:
    """One-time seconds, and losses and seconds of a warm-up and `epochs` epochs."""
    watch = Stopwatch()
    graph = watch.time("graph", lambda: Graph.from_csr(problem.offsets, problem.neighbours))
    rest = np.flatnonzero(~problem.train_mask)
    val_mask = np.zeros(problem.num_vertices, bool)
    val_mask[rest[: len(rest) // 2]] = True
    test_mask = ~problem.train_mask & ~val_mask
    classes = problem.num_classes
    data = Dataset("problem", graph, problem.features, problem.labels, classes, problem.train_mask, val_mask, test_mask)
    ordered, seconds = in_order(data, "community" if order == "community" else "given")
    watch.seconds["order"] = seconds
    del data, graph
    trainer = Trainer(
        model_of(problem),
        ordered,
        optimizer=optax.adam(LEARNING_RATE),
        epochs=epochs + 1,
        eval_every=epochs + 1,
        order="given",
        **options,
    )
    result = trainer.fit()
    epoch_seconds = [record.seconds for record in result.history]
    watch.seconds["hoist"] = result.timings.train - sum(epoch_seconds)
    watch.seconds["compile"] = result.timings.compile
    return {"setup": watch.seconds, "losses": [record.loss for record in result.history], "seconds": epoch_seconds}
