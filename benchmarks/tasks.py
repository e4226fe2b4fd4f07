"""Every task beside PyTorch Geometric's own loops: the same data, split, recipe and metric, several seeds.

Links: the graph auto-encoder of Kipf & Welling, by the recipe of PyTorch Geometric's examples/autoencoder.py (two
convolutions, 32 and 16 wide, Adam at 0.01, 200 epochs, one negative pair per link and epoch), on graphs of $DORYLAX_DATA.
Targets of vertices and classes of graphs are generated. Each run is judged at its epoch of best validation.

    DORYLAX_DATA=… python benchmarks/tasks.py
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optax
from flax import nnx

import dorylax
from dorylax.graph import Dataset, Graph, merge_graphs
from dorylax.layers import GCN
from dorylax.metrics.ranking import roc_auc
from dorylax.tasks import GraphPrediction, LinkPrediction
from harness.command_line import parsed, parser_of, write_json

ADAM = optax.adam(0.01)  # one object, so that seeds share what is compiled
Side = Callable[[int], float]
"""A seed → the metric on the test examples."""


class Case(NamedTuple):
    """A task on some data.

    Attributes:
        name: of both.
        metric: its name.
        ours: this project's side.
        theirs: PyTorch Geometric's; None where it is not installed.
    """

    name: str
    metric: str
    ours: Side
    theirs: Side | None


def links(name: str, data: Dataset, epochs: int) -> Case:
    """Which vertices are joined."""
    task = LinkPrediction()
    split = task.split(data)

    def ours(seed: int) -> float:
        model = GCN(data.num_features, 32, 16, dropout=0.0, rngs=nnx.Rngs(seed))
        trainer = dorylax.Trainer(model, data, task=task, optimizer=ADAM, epochs=epochs, seed=seed)
        return trainer.fit().test_score or 0.0

    def theirs(seed: int) -> float:
        from sides import pyg_tasks

        judge = lambda scores, labels: roc_auc(scores, labels > 0.5)  # noqa: E731
        return pyg_tasks.links(data, split, judge, epochs=epochs, seed=seed)[1]

    return Case(f"links, {name}", "ROC-AUC", ours, theirs if _installed() else None)


def vertices(num_vertices: int, epochs: int) -> Case:
    """A target that is the mean of something hidden in the neighbours' features."""
    base = dorylax.load("communities", num_vertices=num_vertices, num_edges=10 * num_vertices, num_features=32)
    rng = np.random.default_rng(0)
    hidden = np.tanh(base.features @ rng.normal(size=(base.num_features, 4))).sum(axis=1)
    offsets, sources = base.graph.host_rows()
    total = np.add.reduceat(np.append(hidden[sources], 0), np.minimum(offsets[:-1], len(sources)))
    degrees = np.diff(offsets)
    targets = np.where(degrees > 0, total / np.maximum(degrees, 1), hidden) + rng.normal(0, 0.1, len(hidden))
    data = Dataset(
        "neighbours", base.graph, base.features, targets, None, base.train_mask, base.val_mask, base.test_mask
    )

    def ours(seed: int) -> float:
        model = GCN(data.num_features, 64, 1, dropout=0.0, rngs=nnx.Rngs(seed))
        return (
            dorylax.Trainer(model, data, metric="mae", optimizer=ADAM, epochs=epochs, seed=seed).fit().test_score or 0.0
        )

    def theirs(seed: int) -> float:
        from sides import pyg_tasks

        judge = lambda outputs, labels: float(np.abs(outputs - labels).mean())  # noqa: E731
        return pyg_tasks.vertices(data, judge, hidden=64, epochs=epochs, seed=seed)[1]

    return Case("targets of vertices, generated", "MAE", ours, theirs if _installed() else None)


def graphs(count: int, epochs: int) -> Case:
    """Rings, stars and random trees, with some edges more; features are degrees."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    made = [_graph(kind, rng) for kind in labels]
    features = [np.eye(8, dtype=np.float32)[np.minimum(np.diff(graph.host_rows()[0]), 7)] for graph in made]
    part = rng.permutation(count) / count
    masks = (part < 0.6, (part >= 0.6) & (part < 0.8), part >= 0.8)
    names = ("train_mask", "val_mask", "test_mask")
    data = merge_graphs("shapes", made, features, labels, **dict(zip(names, masks, strict=True)))

    def ours(seed: int) -> float:
        model = GCN(data.num_features, 64, 3, dropout=0.0, rngs=nnx.Rngs(seed))
        trainer = dorylax.Trainer(model, data, task=GraphPrediction("mean"), optimizer=ADAM, epochs=epochs, seed=seed)
        return trainer.fit().test_score or 0.0

    def theirs(seed: int) -> float:
        from sides import pyg_tasks

        judge = lambda outputs, truth: float((outputs.argmax(axis=1) == truth).mean())  # noqa: E731
        return pyg_tasks.graphs(data, labels, masks, judge, hidden=64, epochs=epochs, seed=seed)[1]

    return Case("classes of graphs, generated", "accuracy", ours, theirs if _installed() else None)


def _graph(kind: int, rng: np.random.Generator) -> Graph:
    size = int(rng.integers(8, 20))
    ids = np.arange(size)
    parents = [np.roll(ids, 1)[1:], np.zeros(size - 1, int), (rng.random(size - 1) * ids[1:]).astype(int)][kind]
    more = rng.integers(size, size=(2, 4))
    one, other = np.concatenate([np.stack([ids[1:], parents]), more], axis=1)
    # Each edge once: a loop given twice counts twice here, and once in PyTorch Geometric, so that models would differ.
    return Graph.from_coo(np.concatenate([one, other]), np.concatenate([other, one]), size, coalesce="first")


def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "torch_geometric"))


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.4f} ± {deviation:.4f}"


def main() -> None:
    """Prints a row per task."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", default="cora,pubmed", help="graphs for links, by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--graphs", type=int, default=600, help="how many graphs to classify")
    parser.add_argument("--vertices", type=int, default=4000, help="how many vertices have targets")
    parser.add_argument("--json", metavar="FILE", type=Path)
    arguments = parsed(parser, data="communities", seeds=1, epochs=2, graphs=30, vertices=200)
    if not _installed():
        print("left out: PyTorch Geometric, which is not installed")
    cases = [
        *(links(name, dorylax.load(name).row_normalised(), arguments.epochs) for name in arguments.data.split(",")),
        vertices(arguments.vertices, arguments.epochs),
        graphs(arguments.graphs, arguments.epochs),
    ]
    found = []
    for case in cases:
        ours = [case.ours(seed) for seed in range(arguments.seeds)]
        theirs = None if case.theirs is None else [case.theirs(seed) for seed in range(arguments.seeds)]
        found.append({"case": case.name, "metric": case.metric, "dorylax": ours, "pyg": theirs})
        beside = "" if theirs is None else f"  PyTorch Geometric {_spread(theirs)}"
        print(f"{case.name:32} {case.metric:9} dorylax {_spread(ours)}{beside}", flush=True)
    write_json(arguments.json, {"cases": found})


if __name__ == "__main__":
    main()
