"""What vertices have: by its definition, and the same in any parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dorylax.graph import random_order
from dorylax.graph.datasets import community_vertices
from dorylax.graph.datasets.community_vertices import balanced_communities, feature_blocks, noisy_labels


@pytest.mark.parametrize("order", ["random", "community"])
@pytest.mark.parametrize(("number", "dtype"), [(1, np.uint8), (3, np.uint8), (256, np.uint8), (257, np.uint16)])
def test_communities_are_of_equal_size(order, number: int, dtype: type) -> None:
    communities = balanced_communities(1000, number, 0, order)
    sizes = np.bincount(communities, minlength=number)
    assert sizes.sum() == 1000
    assert sizes.max() - sizes.min() <= 1
    assert communities.dtype == dtype
    ascending = bool((np.diff(communities.astype(int)) >= 0).all())
    assert ascending == (order == "community" or number == 1)


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> tuple[np.ndarray, ...]:
        communities = balanced_communities(5000, 7, 3)
        return communities, noisy_labels(communities, 7, 0.3, 3), noisy_labels(communities, 7, 0.3, 3, 1234)

    whole = drawn()
    monkeypatch.setattr(random_order, "_PIECE", 800)
    monkeypatch.setattr(community_vertices, "spans", lambda n: pairwise([*range(0, n, 1001), n]))
    for one, other in zip(whole, drawn(), strict=True):
        assert np.array_equal(one, other)


def test_the_class_of_a_community_is_its_rest() -> None:
    communities = balanced_communities(1000, 10, 0)
    assert np.array_equal(noisy_labels(communities, 4, 0.0, 0), communities % 4)
    blocks = feature_blocks(communities, 4, 500, 100.0, 0, threads=1)
    features = np.concatenate(list(blocks))
    nearest = np.stack([features[communities == k].mean(0) for k in range(10)])
    distance = np.linalg.norm(nearest[:, None] - nearest[None], axis=2)
    same = (np.arange(10)[:, None] - np.arange(10)) % 4 == 0
    assert distance[same].max() < 20 < distance[~same].min()


def test_as_many_as_are_to_be_labelled() -> None:
    communities = balanced_communities(1000, 4, 0)
    every = noisy_labels(communities, 4, 0.1, 0)
    some = noisy_labels(communities, 4, 0.1, 0, 321)
    assert (some >= 0).sum() == 321
    assert np.array_equal(every[some >= 0], some[some >= 0])
    assert np.bincount(np.flatnonzero(some >= 0) // 250).min() > 50  # anywhere
    assert np.array_equal(noisy_labels(communities, 4, 0.1, 0, 1000), every)


@pytest.mark.parametrize("rows", [1, 4096, 4097, 9000])
@pytest.mark.parametrize("threads", [1, 3])
def test_features_are_whole_at_the_borders_of_blocks(rows: int, threads: int) -> None:
    def features(count: int) -> np.ndarray:
        return np.concatenate(list(feature_blocks(np.zeros(count, np.uint8), 1, 3, 1.0, 5, threads=threads)))

    whole = features(9000)
    assert whole.dtype == np.float32
    assert np.array_equal(features(rows), whole[:rows])
    assert len(np.unique(whole, axis=0)) == 9000  # blocks have streams of their own
