"""What vertices of `communities` have: a community, a label, features. All are drawn in parts, and the same in any parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt

from dorylax.graph.datasets.random_streams import Stream
from dorylax.graph.rows import in_order, spans

Order = Literal["random", "community"]

ROWS = 1 << 12
"""Of a block of features; each block has a random stream of its own."""
_COMMUNITY_STREAM, _LABEL_STREAM, _CENTROID_STREAM, _FEATURE_STREAM, _LABELLED_STREAM = 11, 12, 13, 14, 15


def balanced_communities(
    num_vertices: int, num_communities: int, seed: int, order: Order = "random"
) -> UInt[np.ndarray, " V"]:
    """Communities of equal size (to within one vertex), in random order over the vertices or one after another.

    The result has the smallest unsigned type, `[V]`.
    """
    small = np.min_scalar_type(num_communities - 1)
    if order == "community":
        rest = np.arange(num_communities) < num_vertices % num_communities
        return np.repeat(np.arange(num_communities, dtype=small), num_vertices // num_communities + rest)
    communities, first = np.empty(num_vertices, small), 0
    for piece in Stream(seed, _COMMUNITY_STREAM).random_order(num_vertices):
        communities[first : first + len(piece)] = piece % num_communities
        first += len(piece)
    return communities


def noisy_labels(
    communities: UInt[np.ndarray, " V"], num_classes: int, fraction: float, seed: int, num_labelled: int | None = None
) -> Int32[np.ndarray, " V"]:
    """The class k mod C of each vertex' community k, or a random one with probability `fraction`.

    With a number of labelled vertices, all others get -1.
    """
    uniform, wrong_classes = Stream(seed, _LABEL_STREAM), Stream(seed, _LABEL_STREAM)
    wrong_classes.skip(len(communities))  # their words follow all others
    labels = np.empty(len(communities), np.int32)
    for start, stop in spans(len(communities)):
        wrong = uniform.uniform(stop - start) < fraction
        right = communities[start:stop] % num_classes
        labels[start:stop] = np.where(wrong, wrong_classes.below(num_classes, stop - start), right)
    if num_labelled is not None:
        labels[~_chosen(len(labels), num_labelled, seed)] = -1
    return labels


def feature_blocks(
    communities: UInt[np.ndarray, " V"], num_classes: int, num_features: int, signal: float, seed: int, *, threads: int
) -> Iterator[Float32[np.ndarray, "n F"]]:
    """The features, block by block: centroid of the class plus noise of variance 1 in each feature.

    The class of community k is k mod C. `signal` is the length of the centroids, whose directions are random.
    `feature_bytes` estimates the memory of the threads.
    """
    centroids = _centroids(num_classes, num_features, signal, seed)

    def block(span: tuple[int, int]) -> Float32[np.ndarray, "n F"]:
        first, last = span
        noise = Stream(seed, _FEATURE_STREAM, first // ROWS).near_normal((last - first) * num_features)
        features = noise.reshape(-1, num_features)
        features += centroids[communities[first:last] % num_classes]
        return features

    return in_order(block, spans(len(communities), ROWS), threads)


def feature_bytes(num_features: int, threads: int) -> int:
    """What `feature_blocks` holds at its peak: a block for each thread, with its centroids, and the one that is taken."""
    return 4 * ROWS * num_features * (2 * threads + 1)


def _chosen(count: int, number: int, seed: int) -> Bool[np.ndarray, " {count}"]:
    """So many of all, at random."""
    chosen = np.zeros(count, bool)
    for piece in Stream(seed, _LABELLED_STREAM).random_order(count):
        chosen[piece[:number]] = True
        number -= len(piece)
        if number <= 0:
            break
    return chosen


def _centroids(num_classes: int, num_features: int, signal: float, seed: int) -> Float32[np.ndarray, "C F"]:
    # Integer coordinates: their sum of squares is exact in any order of addition, so the result is the same everywhere.
    bound = 1 << 16
    direction = Stream(seed, _CENTROID_STREAM).below(bound, num_classes * num_features).reshape(num_classes, -1)
    direction = 2 * direction - (bound - 1)
    length = np.sqrt((direction**2).sum(1).astype(np.float64))
    centroids: np.ndarray = (direction / length[:, None] * signal).astype(np.float32)
    return centroids
