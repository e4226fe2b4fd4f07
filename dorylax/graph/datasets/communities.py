"""`communities`: a generated data set, made from a seed in any size, with nothing to download.

The graph is a degree-corrected stochastic block model (`block_model`): a vertex has a community, most of its edges stay
inside it, degrees follow a power law. The features are the community's centroid under noise of variance 1 in every
direction, the label is the community, a few labels wrong. A vertex' own features leave its class in doubt, those of its
neighbours together settle it, so that models which use the graph are clearly better than models that do not.

The same arguments give the same bits, whatever the number of threads. Sizes named after the paper's graphs have the
shapes (vertices, edges, features, classes) of its Table 1 (J. Thorpe et al., "Dorylus", OSDI 2021), not their content.
"""

from __future__ import annotations

import dataclasses
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from dorylax.aligned import empty
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.base import DatasetError, Size, near_matches
from dorylax.graph.datasets.block_model import BlockModel, power_law_propensities
from dorylax.graph.datasets.random_streams import Stream
from dorylax.graph.splits import stratified_split

NAME = "communities"
DEFAULT_SIZE = "small"

# Memory while generating is about 4 bytes an edge and 4 a feature: 1.2 GB for reddit-small, 7 GB for reddit-large,
# 14 GB for amazon (nearly all of it features), 26 GB for friendster.
SIZES = {
    "tiny": Size(1_000, 10_000, 16, 4),
    "small": Size(20_000, 400_000, 64, 10),
    "medium": Size(200_000, 10_000_000, 128, 20),
    "reddit-small": Size(232_965, 114_800_000, 602, 41),
    "reddit-large": Size(1_100_000, 1_300_000_000, 301, 50),
    "amazon": Size(9_200_000, 313_900_000, 300, 25),
    "friendster": Size(65_600_000, 3_600_000_000, 32, 50),
}

_COMMUNITY_STREAM, _LABEL_STREAM, _CENTROID_STREAM, _FEATURE_STREAM = 11, 12, 13, 14
_NUMBERS = ("average_degree", "homophily", "signal", "label_noise", "degree_exponent")
_ROWS_PER_BLOCK = 1 << 12  # of features


@dataclasses.dataclass(frozen=True)
class Options:
    """What `load("communities", …)` takes besides `size` and `split_seed`; None means: as the size has it.

    Attributes:
        seed: of graph, labels and features.
        num_vertices: V.
        num_edges: E, directed edges, even: each undirected edge counts twice.
        average_degree: E / V, instead of `num_edges`; by default, that of the size.
        num_features: F.
        num_classes: C, the number of communities.
        homophily: fraction of edges inside a community, 1/C (none more than by chance) … 1.
        signal: distance of a community's features from the origin, in standard deviations of the noise.
        label_noise: fraction of vertices that get a label at random: no model can do better than
            1 - label_noise·(C-1)/C.
        degree_exponent: of the power law of degrees, > 1.
    """

    seed: int = 0
    num_vertices: int | None = None
    num_edges: int | None = None
    average_degree: float | None = None
    num_features: int | None = None
    num_classes: int | None = None
    homophily: float = 0.6
    signal: float = 1.5
    label_noise: float = 0.05
    degree_exponent: float = 2.5


def load(*, size: str = DEFAULT_SIZE, split_seed: int = 0, **options: Any) -> Dataset:
    """Generates the data set.

    Args:
        size: a key of `SIZES`.
        split_seed: of the split into 60 % training, 20 % validation and 20 % test vertices, by class.
        options: fields of `Options`.

    Raises:
        DatasetError: an unknown size or option, or a value that makes no graph.
    """
    if size not in SIZES:
        raise DatasetError(f"communities has no size {size!r}.{near_matches(str(size), SIZES)}")
    known = {field.name: field for field in dataclasses.fields(Options)}
    for name, value in options.items():
        if name not in known:
            raise DatasetError(
                f"communities has no option {name!r}.{near_matches(name, [*known, 'size', 'split_seed'])}"
            )
        if name in _NUMBERS:
            options[name] = _number(name, value)
        elif value is not None or known[name].default is not None:
            _require(name, value, isinstance(value, int) and not isinstance(value, bool), "an integer")
    chosen = Options(**options)
    shape = _shape(SIZES[size], chosen)
    _check(shape, chosen)
    communities = balanced_communities(shape.num_vertices, shape.num_classes, chosen.seed)
    propensities = power_law_propensities(shape.num_vertices, chosen.degree_exponent, chosen.seed)
    graph = BlockModel(communities, propensities, shape.num_edges, chosen.homophily, chosen.seed).sample()
    features = class_features(communities, shape.num_features, chosen.signal, chosen.seed)
    labels = noisy_labels(communities, shape.num_classes, chosen.label_noise, chosen.seed)
    masks = stratified_split(labels, split_seed)
    return Dataset(NAME, graph, features, labels, shape.num_classes, *masks)


def balanced_communities(num_vertices: int, num_classes: int, seed: int) -> Int32[np.ndarray, " V"]:
    """Communities of equal size (to within one vertex), in random order over the vertices, int32 `[V]`."""
    order = Stream(seed, _COMMUNITY_STREAM).permutation(num_vertices)
    return (order % num_classes).astype(np.int32)


def noisy_labels(
    communities: Int32[np.ndarray, " V"], num_classes: int, fraction: float, seed: int
) -> Int32[np.ndarray, " V"]:
    """The communities, with a random class instead for each vertex with probability `fraction`, int32 `[V]`."""
    stream = Stream(seed, _LABEL_STREAM)
    wrong = stream.uniform(len(communities)) < fraction
    return np.where(wrong, stream.below(num_classes, len(communities)), communities).astype(np.int32)


def class_features(
    communities: Int32[np.ndarray, " V"], num_features: int, signal: float, seed: int
) -> Float32[np.ndarray, "V F"]:
    """Centroid of the community plus noise.

    Args:
        communities: of each vertex, int32 `[V]`.
        num_features: F.
        signal: length of the centroids, whose directions are random.
        seed: of the random streams.

    Returns:
        float32 `[V, F]`; the noise has variance 1 in each feature.
    """
    centroids = _centroids(int(communities.max()) + 1, num_features, signal, seed)
    features = empty((len(communities), num_features), np.float32)

    def fill(block: int) -> None:
        rows = slice(block * _ROWS_PER_BLOCK, (block + 1) * _ROWS_PER_BLOCK)
        part = features[rows]
        part[:] = Stream(seed, _FEATURE_STREAM, block).near_normal(part.size).reshape(part.shape)
        part += centroids[communities[rows]]

    blocks = math.ceil(len(communities) / _ROWS_PER_BLOCK)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, blocks)) as threads:
        list(threads.map(fill, range(blocks)))  # raises here what a thread raised
    return features


def _centroids(num_classes: int, num_features: int, signal: float, seed: int) -> Float32[np.ndarray, "C F"]:
    # Integer coordinates: their sum of squares is exact in any order of addition, so the result is the same everywhere.
    bound = 1 << 16
    direction = Stream(seed, _CENTROID_STREAM).below(bound, num_classes * num_features).reshape(num_classes, -1)
    direction = 2 * direction - (bound - 1)
    length = np.sqrt((direction**2).sum(1).astype(np.float64))
    centroids: np.ndarray = (direction / length[:, None] * signal).astype(np.float32)
    return centroids


def _shape(size: Size, options: Options) -> Size:
    num_vertices = size.num_vertices if options.num_vertices is None else options.num_vertices
    num_edges = options.num_edges
    if num_edges is not None and options.average_degree is not None:
        raise DatasetError("give num_edges or average_degree of communities, not both")
    if num_edges is None:
        degree = options.average_degree
        if degree is None:
            degree = size.num_edges / size.num_vertices
        num_edges = 2 * round(num_vertices * degree / 2)
    return Size(
        num_vertices,
        num_edges,
        size.num_features if options.num_features is None else options.num_features,
        size.num_classes if options.num_classes is None else options.num_classes,
    )


def _check(shape: Size, options: Options) -> None:
    V, E, C = shape.num_vertices, shape.num_edges, shape.num_classes
    for name, value, least in (
        ("seed", options.seed, 0),
        ("num_vertices", V, 2),
        ("num_edges", E, 0),
        ("num_features", shape.num_features, 1),
        ("num_classes", C, 1),
    ):
        _require(name, value, value >= least, f"≥ {least}")
    _require("num_vertices", V, V < 2**31, "below 2³¹ (vertex ids are int32)")
    _require("num_edges", E, E % 2 == 0, "even: each undirected edge counts twice")
    _require("num_classes", C, C <= V, f"at most num_vertices, {V}")
    for name, low, high in (
        ("homophily", 1 / C, 1.0),
        ("signal", 0.0, 1e6),
        ("label_noise", 0.0, 1.0),
        ("degree_exponent", 1.01, 100.0),
    ):
        value = getattr(options, name)
        _require(name, value, low <= value <= high, f"from {low:g} to {high:g}")


def _number(name: str, value: Any) -> float | None:
    if value is None and name == "average_degree":
        return None
    _require(name, value, isinstance(value, int | float) and not isinstance(value, bool), "a number")
    _require(name, value, math.isfinite(value) and value >= 0, "finite and ≥ 0")
    return float(value)


def _require(name: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise DatasetError(f"{name} of communities must be {expected}, got {value!r}")
