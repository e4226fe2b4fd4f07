from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "communities has no size 'huge'"),
        ({"size": "redit-small"}, "Did you mean 'reddit-small'"),
        ({"num_vertexes": 5}, "no option 'num_vertexes'. Did you mean 'num_vertices'"),
        ({"num_vertices": 1}, "num_vertices of communities must be ≥ 2, got 1"),
        ({"num_vertices": 2**31}, "below 2³¹"),
        ({"num_edges": 11}, "num_edges of communities must be even"),
        ({"num_edges": 10, "average_degree": 2.0}, "not both"),
        ({"average_degree": -1.0}, "average_degree of communities must be finite and ≥ 0, got -1"),
        ({"num_classes": 2000}, "at most num_vertices, 1000"),
        ({"num_classes": True}, "num_classes of communities must be an integer"),
        ({"num_communities": 3}, "num_communities of communities must be ≥ 4, got 3"),
        ({"num_communities": 1001}, "num_communities of communities must be at most num_vertices, 1000, got 1001"),
        ({"num_labelled": 0}, "num_labelled of communities must be from 1 to num_vertices, 1000, got 0"),
        ({"order": "given"}, "order of communities must be random or community, got .given."),
        ({"homophily": 0.1}, "homophily of communities must be from 0.25 to 1, got 0.1"),
        ({"signal": "much"}, "signal of communities must be a number, got 'much'"),
        ({"degree_exponent": 1.0}, "degree_exponent"),
        ({"seed": -1}, "seed of communities must be ≥ 0, got -1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.load("communities", **{"size": "tiny", **options})


GOLDEN_TINY = "55f581a83b7f0c9111754ad7138676918fe1887199b7e4a0cc03722fe4376545"
