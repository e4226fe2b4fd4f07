"""A small data set and a small model, quick to compile, for everything the trainer does."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from support import compilation

from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.layers.dropout import Dropout
from dorylax.ops.gather import gather
from dorylax.ops.row_random import vertex_ids
from dorylax.trainer import EpochRecord, Trainer, TrainResult, vertex_order

V, F, C = 48, 6, 3


class Net(nnx.Module):
    """Two dense layers around a mean over in-neighbours, with dropout keyed by vertex."""

    def __init__(self, out_features: int = C, rate: float = 0.5, *, rngs: nnx.Rngs) -> None:
        self.convs = nnx.List([nnx.Linear(F, 8, rngs=rngs), nnx.Linear(8, out_features, rngs=rngs)])
        self.drop = Dropout(rate, rngs=rngs)

    def __call__(self, graph: Graph, x: jax.Array) -> jax.Array:
        h = jax.nn.relu(self.convs[0](self.drop(x, vertex_ids(graph))))
        return self.convs[1](h + gather(graph, h, reduce="mean"))


class NormNet(nnx.Module):
    """A model with state that is neither parameter nor randomness; it cannot be split: a maximum over all vertices."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.norm = nnx.BatchNorm(F, momentum=0.5, rngs=rngs)
        self.out = nnx.Linear(F, C, rngs=rngs)

    def __call__(self, graph: Graph, x: jax.Array) -> jax.Array:
        h = self.norm(x)
        return self.out(h - h.max(axis=0))


@dataclasses.dataclass
class Watcher:
    """An observer that keeps what it is told, and may do something after an epoch."""

    after: Callable[[EpochRecord], Any] = lambda record: None
    calls: list[Any] = dataclasses.field(default_factory=list)

    def started(self, total_epochs: int, first_epoch: int) -> None:
        self.calls.append(("started", total_epochs, first_epoch))

    def epoch(self, record: EpochRecord) -> None:
        self.calls.append(record.epoch)
        self.after(record)

    def finished(self, result: TrainResult) -> None:
        self.calls.append(("finished", result.stopped))


def make_data(multilabel: bool = False, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    classes = np.arange(V, dtype=np.int32) % C
    sources = np.sort((np.arange(V)[:, None] + C * rng.integers(1, V // C, (V, 4))) % V, axis=1)
    graph = Graph(np.arange(V + 1, dtype=np.int64) * 4, sources.reshape(-1).astype(np.int32))
    features = (np.eye(F)[classes] + rng.normal(0, 0.7, (V, F))).astype(np.float32)
    order = rng.permutation(V)
    masks = [np.isin(np.arange(V), part) for part in (order[:16], order[16:32], order[32:])]
    labels = classes
    if multilabel:
        labels = (np.eye(C)[classes] + np.eye(C)[(classes + rng.integers(0, 2, V)) % C] > 0).astype(np.float32)
    return Dataset("small", graph, features, labels, C, *masks)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Ignores the warning of a checkout without the built kernel."""
    item.add_marker(pytest.mark.filterwarnings("ignore:dorylax runs without its native:RuntimeWarning"))


@pytest.fixture(scope="session")
def data() -> Dataset:
    return make_data()


@pytest.fixture(scope="session")
def multilabel_data() -> Dataset:
    return make_data(multilabel=True)


@pytest.fixture
def watcher() -> type[Watcher]:
    return Watcher


@pytest.fixture
def net() -> type[Net]:
    return Net


@pytest.fixture
def norm_net() -> Iterator[type[NormNet]]:
    """Optimised: else XLA computes twice, and unequally, what its maximum is compared with, whose derivative is then NaN."""
    with compilation.as_users_do():
        yield NormNet


@pytest.fixture(scope="session")
def adam() -> optax.GradientTransformation:
    return optax.adam(0.05)


@pytest.fixture
def trainer(data: Dataset, adam: optax.GradientTransformation) -> Callable[..., Trainer]:
    """Makes trainers of the small model; options override the defaults."""

    def make(**options: Any) -> Trainer:
        chosen = {"model": Net(rngs=nnx.Rngs(options.get("seed", 0))), "data": data, "optimizer": adam, "epochs": 20}
        chosen.update(options)
        return Trainer(chosen.pop("model"), chosen.pop("data"), **chosen)

    return make


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Replaces the order by communities with a shuffle; the list grows with each call."""
    made: list[np.ndarray] = []

    def order(graph: Graph) -> np.ndarray:
        made.append(np.random.default_rng(3).permutation(graph.num_vertices))
        return made[-1]

    monkeypatch.setattr("dorylax.graph.partition.cached_locality_order", order)
    monkeypatch.setattr(vertex_order, "_reordered", weakref.WeakKeyDictionary())
    return made


@pytest.fixture
def beyond_cache(shuffled: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """As `shuffled`, with data sets larger than the cache."""
    monkeypatch.setattr(vertex_order, "CACHE_BYTES", 0)
    return shuffled


def _same(a: Any, b: Any) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.fixture
def same() -> Callable[[Any, Any], bool]:
    """Whether two trees of arrays are the same bit for bit."""
    return _same


@pytest.fixture
def timeless() -> Callable[[list[EpochRecord]], list[EpochRecord]]:
    """A history without its wall times."""
    return lambda history: [dataclasses.replace(record, seconds=0.0) for record in history]
