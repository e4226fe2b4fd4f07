from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dorylax.graph import datasets
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import DatasetError, communities


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_has_the_numbers_of_its_size(size: str) -> None:
    data = datasets.load("communities", size=size)
    graph = data.graph
    found = datasets.Size(graph.num_vertices, graph.num_edges, data.num_features, data.num_classes)
    assert found == communities.SIZES[size]
    assert (data.name, data.multilabel, graph.symmetric) == ("communities", False, True)
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == tuple(
        round(part * graph.num_vertices) for part in (0.6, 0.2, 0.2)
    )


def test_sizes_of_the_papers_graphs() -> None:
    assert communities.SIZES["reddit-small"] == datasets.Size(232_965, 114_800_000, 602, 41)
    assert communities.SIZES["reddit-large"] == datasets.Size(1_100_000, 1_300_000_000, 301, 50)
    assert communities.SIZES["amazon"] == datasets.Size(9_200_000, 313_900_000, 300, 25)
    assert communities.SIZES["papers100m"] == datasets.Size(111_059_956, 3_228_124_712, 128, 172)


def digest(data: Dataset) -> str:
    arrays = (data.graph.incoming.offsets, data.graph.incoming.neighbours, data.features, data.labels)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def test_is_the_same_everywhere_for_a_seed() -> None:
    assert digest(datasets.load("communities", size="tiny")) == GOLDEN_TINY
    assert digest(datasets.load("communities", size="tiny", seed=0)) == GOLDEN_TINY
    assert digest(datasets.load("communities", size="tiny", seed=1)) != GOLDEN_TINY


def test_split_seed_changes_nothing_but_the_split() -> None:
    one, two = (datasets.load("communities", size="tiny", split_seed=seed) for seed in (0, 1))
    assert digest(one) == digest(two)
    assert not np.array_equal(one.train_mask, two.train_mask)


def test_options_override_single_numbers() -> None:
    data = datasets.load(
        "communities", size="tiny", num_vertices=500, num_edges=3000, num_features=7, num_classes=3, homophily=1.0
    )
    assert (data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes) == (500, 3000, 7, 3)
    assert datasets.load("communities", size="tiny", num_vertices=500).graph.num_edges == 5000  # its average degree
    assert datasets.load("communities", size="tiny", average_degree=3.5).graph.num_edges == 3500


def test_label_noise_and_signal() -> None:
    clean = datasets.load("communities", size="small", label_noise=0.0, homophily=1.0)
    noisy = datasets.load("communities", size="small", label_noise=0.5, homophily=1.0)
    assert abs((clean.labels != noisy.labels).mean() - 0.5 * 9 / 10) < 0.02
    assert np.array_equal(clean.features, noisy.features)
    centroids = np.stack([clean.features[clean.labels == c].mean(0) for c in range(10)])
    assert np.allclose(np.linalg.norm(centroids, axis=1), 1.5, atol=0.1)
    assert np.allclose((clean.features - centroids[clean.labels]).var(0), 1, atol=0.05)


def test_communities_one_after_another_and_more_of_them_than_classes() -> None:
    data = datasets.load(
        "communities", size="small", order="community", num_communities=40, homophily=0.8, label_noise=0.0
    )
    assert data.labels.tolist() == (np.arange(20_000) // 500 % 10).tolist()
    offsets, sources = data.graph.host_rows()
    apart = abs(np.repeat(np.arange(20_000), np.diff(offsets)) - sources)
    assert 0.79 < (apart < 500).mean() < 0.83  # those inside, and a few by chance
    assert data.graph.num_edges == 400_000
    assert not np.array_equal(data.train_mask[:500], data.train_mask[500:1000])


def test_labelled_vertices() -> None:
    data = datasets.load("communities", size="tiny", num_labelled=200)
    every = datasets.load("communities", size="tiny")
    assert (data.labels >= 0).sum() == 200
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (120, 40, 40)
    assert np.array_equal(data.features, every.features)
    assert communities.Communities("papers100m", 0, {})._num_labelled == 1_546_782
    part = datasets.load("communities", size="papers100m", num_vertices=100_000, num_features=2)
    assert (part.labels >= 0).sum() == 1393  # as many in a hundred as there


def test_vertex_order_says_nothing_about_communities() -> None:
    labels = datasets.load("communities", size="small", label_noise=0.0).labels
    assert np.bincount(labels).tolist() == [2000] * 10
    # In random order neighbouring ids agree one time in ten; the standard deviation is 0.002.
    assert abs((labels[1:] == labels[:-1]).mean() - 0.1) < 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "communities has no size 'huge'"),
        ({"size": "redit-small"}, "Did you mean 'reddit-small'"),
        ({"num_vertexes": 5}, "no option 'num_vertexes'. Did you mean 'num_vertices'"),
        ({"num_vertices": 1}, "num_vertices of communities must be ≥ 2, got 1"),
        ({"num_vertices": "5"}, "num_vertices of communities must be an integer, got '5'"),
        ({"num_vertices": 2**31}, "below 2³¹"),
        ({"num_edges": 11}, "num_edges of communities must be even"),
        ({"num_edges": -2}, "num_edges of communities must be ≥ 0, got -2"),
        ({"num_edges": 10, "average_degree": 2.0}, "not both"),
        ({"average_degree": -1.0}, "average_degree of communities must be finite and ≥ 0, got -1"),
        ({"average_degree": float("nan")}, "average_degree"),
        ({"average_degree": float("inf")}, "average_degree"),
        ({"num_classes": 2000}, "at most num_vertices, 1000"),
        ({"num_classes": True}, "num_classes of communities must be an integer"),
        ({"num_communities": 3}, "num_communities of communities must be ≥ 4, got 3"),
        ({"num_communities": 0}, "num_communities of communities must be ≥ 4, got 0"),
        ({"num_communities": 1001}, "num_communities of communities must be at most num_vertices, 1000, got 1001"),
        ({"num_labelled": 0}, "num_labelled of communities must be from 1 to num_vertices, 1000, got 0"),
        ({"num_labelled": 1001}, "num_labelled of communities must be from 1 to num_vertices, 1000, got 1001"),
        ({"num_labelled": 5.0}, "num_labelled of communities must be an integer, got 5.0"),
        ({"order": "given"}, "order of communities must be random or community, got .given."),
        ({"order": None}, "order of communities must be random or community, got None"),
        ({"num_features": 0}, "num_features of communities must be ≥ 1, got 0"),
        ({"homophily": 0.1}, "homophily of communities must be from 0.25 to 1, got 0.1"),
        ({"homophily": float("nan")}, "homophily"),
        ({"signal": -1.0}, "signal"),
        ({"signal": "much"}, "signal of communities must be a number, got 'much'"),
        ({"seed": None}, "seed of communities must be an integer, got None"),
        ({"label_noise": 1.5}, "label_noise"),
        ({"degree_exponent": 1.0}, "degree_exponent"),
        ({"seed": -1}, "seed of communities must be ≥ 0, got -1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.load("communities", **{"size": "tiny", **options})


def test_accuracy_with_the_graph_is_clearly_above_accuracy_without() -> None:
    """A two-layer GCN (as a dense matrix, so that nothing else of the package takes part) against an MLP."""
    data = datasets.load("communities", size="tiny")
    with_graph, without = (
        accuracy_on_test(data, propagation(data)),
        accuracy_on_test(data, np.eye(1000, dtype=np.float32)),
    )
    assert without > 0.4  # features do say something: chance is 0.25
    assert with_graph < 0.97  # and the graph does not give the answer away: a few labels are wrong
    assert with_graph > without + 0.1


def propagation(data: Dataset) -> np.ndarray:
    matrix = np.eye(data.graph.num_vertices, dtype=np.float32)
    offsets, sources = data.graph.incoming.offsets, data.graph.incoming.neighbours
    np.add.at(matrix, (np.repeat(np.arange(len(matrix)), np.diff(offsets)), sources), 1)
    scale = 1 / np.sqrt(matrix.sum(1))
    return scale[:, None] * matrix * scale


def accuracy_on_test(data: Dataset, mix: np.ndarray, epochs: int = 60, width: int = 32) -> float:
    matrix, x, y, train = (jnp.asarray(a) for a in (mix, data.features, data.labels, data.train_mask))
    keys = jax.random.split(jax.random.key(0))
    params = [
        jax.random.normal(keys[0], (data.num_features, width)) / data.num_features**0.5,
        jax.random.normal(keys[1], (width, data.num_classes)) / width**0.5,
    ]
    optimizer = optax.adam(0.02)

    def logits(params: list[jax.Array]) -> jax.Array:
        return matrix @ (jax.nn.relu(matrix @ (x @ params[0])) @ params[1])

    def loss(params: list[jax.Array]) -> jax.Array:
        each = optax.softmax_cross_entropy_with_integer_labels(logits(params), y)
        return jnp.where(train, each, 0).sum() / train.sum() + 5e-4 * sum((p**2).sum() for p in params)

    @jax.jit
    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), None, length=epochs)
    right = np.asarray(logits(params).argmax(1)) == data.labels
    return float(right[data.test_mask].mean())


GOLDEN_TINY = "55f581a83b7f0c9111754ad7138676918fe1887199b7e4a0cc03722fe4376545"
