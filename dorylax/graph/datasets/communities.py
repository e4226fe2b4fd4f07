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
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
from jaxtyping import Float32, Int32, UInt

from dorylax.aligned import empty
from dorylax.graph.array_folder import FolderWriter, check_target, write_arrays
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.base import DatasetError, Size, near_matches
from dorylax.graph.datasets.block_model import BlockModel, drawing_bytes, power_law_propensities
from dorylax.graph.datasets.random_streams import Stream
from dorylax.graph.rows import in_order, spans
from dorylax.graph.splits import split_bytes, stratified_split
from dorylax.graph.validate import check_disk, gibibytes
from dorylax.machine import cores, memory_limit, resident_bytes

NAME = "communities"
DEFAULT_SIZE = "small"

# Memory while generating is about 4 bytes an edge and 4 a feature: 1.2 GB for reddit-small, 7 GB for reddit-large,
# 14 GB for amazon (nearly all of it features), 26 GB for friendster, 75 GB for papers100m; `generate` does with 3 GB.
SIZES = {
    "tiny": Size(1_000, 10_000, 16, 4),
    "small": Size(20_000, 400_000, 64, 10),
    "medium": Size(200_000, 10_000_000, 128, 20),
    "reddit-small": Size(232_965, 114_800_000, 602, 41),
    "reddit-large": Size(1_100_000, 1_300_000_000, 301, 50),
    "amazon": Size(9_200_000, 313_900_000, 300, 25),
    "friendster": Size(65_600_000, 3_600_000_000, 32, 50),
    "papers100m": Size(111_059_956, 3_228_124_712, 128, 172),
}
_LABELLED = {"papers100m": 1_546_782}

Order = Literal["random", "community"]
_ROWS = 1 << 12  # of a block of features; each block has its own random stream
_COMMUNITY_STREAM, _LABEL_STREAM, _CENTROID_STREAM, _FEATURE_STREAM, _LABELLED_STREAM = 11, 12, 13, 14, 15
_MOST_THREADS = 16
_BESIDE = 96 << 20  # of allocators and of Python
Progress = Callable[[int, int, str], object]
"""Called with the number of bytes written, their total, and the kind of the last ones."""

_NUMBERS = ("average_degree", "homophily", "signal", "label_noise", "degree_exponent")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `load("communities", …)`, except `size` and `split_seed`; None for the value of the size.

    Attributes:
        seed: of graph, labels and features.
        num_vertices: V.
        num_edges: E, directed edges, even: each undirected edge counts twice.
        average_degree: E / V, instead of `num_edges`; by default, that of the size.
        num_features: F.
        num_classes: C.
        num_communities: K ≥ C; by default C. The class of community k is k mod C. In `order="community"` the more there
            are, the nearer are neighbours: most are within V / K rows.
        num_labelled: vertices that have a label, chosen at random; by default all, and as many as ogbn-papers100M has
            in papers100m.
        order: of the vertices: "random", or "community": those of a community follow each other, so that no pass that
            finds communities and reorders vertices has to come after. They are different graphs of the same kind.
        homophily: fraction of edges inside a community, 1/K (none more than by chance) … 1.
        signal: distance of a class's features from the origin, in standard deviations of the noise.
        label_noise: fraction of vertices that get a label at random: no model can do better than 1 -
            label_noise·(C-1)/C.
        degree_exponent: of the power law of degrees, > 1.
    """

    seed: int = 0
    num_vertices: int | None = None
    num_edges: int | None = None
    average_degree: float | None = None
    num_features: int | None = None
    num_classes: int | None = None
    num_communities: int | None = None
    num_labelled: int | None = None
    order: Order = "random"
    homophily: float = 0.6
    signal: float = 1.5
    label_noise: float = 0.05
    degree_exponent: float = 2.5


def load(*, size: str = DEFAULT_SIZE, split_seed: int = 0, **options: Any) -> Dataset:
    """Generate the data set of a size (a key of `SIZES`); options are fields of `Options`.

    The split has 60 % training, 20 % validation and 20 % test vertices, by class. Raises a DatasetError for an unknown
    size or option, or a value that makes no graph.
    """
    drawn = Communities(size, options)
    graph = drawn.block_model().sample()
    features, row = empty((drawn.shape.num_vertices, drawn.shape.num_features), np.float32), 0
    for block in drawn.feature_blocks(cores()):
        features[row : row + len(block)] = block
        row += len(block)
    labels = drawn.labels()
    return Dataset(NAME, graph, features, labels, drawn.shape.num_classes, *stratified_split(labels, split_seed))


def write(
    path: Path,
    *,
    size: str = DEFAULT_SIZE,
    split_seed: int = 0,
    memory: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write the folder that saving `load`'s data set gives, in a few bytes a vertex; see `registry.generate`."""
    check_target(path)
    drawn = Communities(size, options)
    threads = _threads(drawn, memory)
    shape, done = drawn.shape, 0
    V, E, F = shape.num_vertices, shape.num_edges, shape.num_features
    total = 8 * V + 4 * E + 4 * V * F + (4 + 3) * V

    def told(what: str, *arrays: np.ndarray) -> None:
        nonlocal done
        done += sum(array.nbytes for array in arrays)
        if progress is not None:
            progress(done, total, what)

    def fill(folder: FolderWriter) -> None:
        check_disk(path, total)
        told("communities")
        indptr = folder.open("indptr", np.dtype(np.int64), (V + 1,))
        indices = folder.open("indices", np.dtype(np.int32), (E,))
        values = {"directed": False, "self_loops": "none", "name": NAME}
        for name, value in (values | {"num_classes": shape.num_classes, "multilabel": False}).items():
            folder.add(name, np.array(value))
        features = folder.open("features", np.dtype(np.float32), (V, F))
        indptr.write(np.zeros(1, np.int64))
        edges = 0
        for rows in drawn.block_model().row_blocks(threads):
            indptr.write(np.cumsum(rows.degrees) + edges)
            indices.write(rows.neighbours)
            edges += len(rows.neighbours)
            told("edges", *rows)
        for block in drawn.feature_blocks(threads):
            features.write(block)
            told("features", block)
        labels = drawn.labels()
        masks = stratified_split(labels, split_seed)._asdict()
        for name, array in {"labels": labels, **masks}.items():
            folder.add(name, array)
        told("labels", labels, *masks.values())

    write_arrays(path, fill, provenance={"command": "dorylax generate", "options": repr({"size": size, **options})})


def _threads(drawn: Communities, memory: int | None) -> int:
    """The most threads that memory suffices for."""
    if memory is None:
        limit = memory_limit()
        memory = sys.maxsize if limit is None else limit.bytes
    base = resident_bytes() + _BESIDE
    for threads in range(min(cores(), _MOST_THREADS), 0, -1):
        if (needed := base + drawn.bytes_in_parts(threads)) <= memory:
            return threads
    raise DatasetError(
        f"memory = {gibibytes(memory)} is too little to generate {drawn.shape.num_vertices:,} vertices and "
        f"{drawn.shape.num_edges:,} edges: {gibibytes(needed)} would do"
    )


@final
class Communities:
    """The graph, features and labels of some arguments of `load`, part by part, with its errors. `shape` has their numbers.

    All parts are the same however they are cut and on any number of threads.
    """

    def __init__(self, size: str, options: Mapping[str, Any]) -> None:
        if size not in SIZES:
            raise DatasetError(f"communities has no size {size!r}.{near_matches(str(size), SIZES)}")
        self._options = _checked_options(options)
        self.shape = _shape(SIZES[size], self._options)
        communities, labelled = self._options.num_communities, self._options.num_labelled
        if labelled is None and size in _LABELLED:
            labelled = -(-_LABELLED[size] * self.shape.num_vertices // SIZES[size].num_vertices)
        self._num_communities = self.shape.num_classes if communities is None else communities
        self._num_labelled = labelled
        _check(self.shape, self._num_communities, labelled, self._options)

    def bytes_in_parts(self, threads: int) -> int:
        """Peak memory of drawing the parts one after another by so many threads, with rows and features taken away."""
        exponent, order = self._options.degree_exponent, self._options.order
        working = working_bytes(self.shape, threads, exponent, self._num_communities, order)
        return max(working._replace(labels=working.labels + (4 + 3) * self.shape.num_vertices))

    @cached_property
    def _communities(self) -> UInt[np.ndarray, " V"]:
        """Communities of equal size (to within one vertex), of the smallest unsigned type."""
        V, K = self.shape.num_vertices, self._num_communities
        small = np.min_scalar_type(K - 1)
        if self._options.order == "community":
            return np.repeat(np.arange(K, dtype=small), V // K + (np.arange(K) < V % K))
        communities, first = np.empty(V, small), 0
        for piece in self._stream(_COMMUNITY_STREAM).random_order(V):
            communities[first : first + len(piece)] = piece % K
            first += len(piece)
        return communities

    def block_model(self) -> BlockModel:
        """Return the model that draws the graph."""
        options, shape = self._options, self.shape
        propensities = power_law_propensities(shape.num_vertices, options.degree_exponent, options.seed)
        return BlockModel(self._communities, propensities, shape.num_edges, options.homophily, options.seed)

    def feature_blocks(self, threads: int) -> Iterator[Float32[np.ndarray, "n F"]]:
        """The features, block by block: centroid of the class plus noise of variance 1 in each feature."""
        classes, width, centroids = self.shape.num_classes, self.shape.num_features, self._centroids()

        def block(span: tuple[int, int]) -> Float32[np.ndarray, "n F"]:
            first, last = span
            noise = self._stream(_FEATURE_STREAM, first // _ROWS).near_normal((last - first) * width)
            features = noise.reshape(-1, width)
            features += centroids[self._communities[first:last] % classes]
            return features

        return in_order(block, spans(len(self._communities), _ROWS), threads)

    def labels(self) -> Int32[np.ndarray, " V"]:
        """The class k mod C of community k, or a random one where there is noise; -1 where there is no label."""
        V, C = self.shape.num_vertices, self.shape.num_classes
        uniform, wrong_classes = self._stream(_LABEL_STREAM), self._stream(_LABEL_STREAM)
        wrong_classes.skip(V)  # their words follow all others
        labels = np.empty(V, np.int32)
        for start, stop in spans(V):
            wrong = uniform.uniform(stop - start) < self._options.label_noise
            labels[start:stop] = np.where(
                wrong, wrong_classes.below(C, stop - start), self._communities[start:stop] % C
            )
        if self._num_labelled is not None:
            unlabelled, left = np.ones(V, bool), self._num_labelled
            for piece in self._stream(_LABELLED_STREAM).random_order(V):
                unlabelled[piece[:left]] = False
                left -= len(piece)
                if left <= 0:
                    break
            labels[unlabelled] = -1
        return labels

    def _stream(self, *key: int) -> Stream:
        return Stream(self._options.seed, *key)

    def _centroids(self) -> Float32[np.ndarray, "C F"]:
        # Integer coordinates: their sum of squares is exact in any order of addition, so the result is the same everywhere.
        bound = 1 << 16
        words = self._stream(_CENTROID_STREAM).below(bound, self.shape.num_classes * self.shape.num_features)
        direction = 2 * words.reshape(self.shape.num_classes, -1) - (bound - 1)
        length = np.sqrt((direction**2).sum(1).astype(np.float64))
        centroids: np.ndarray = (direction / length[:, None] * self._options.signal).astype(np.float32)
        return centroids


class Working(NamedTuple):
    """Peak memory of drawing in bytes, beside the result: of rows, of features, of labels and masks."""

    rows: int
    features: int
    labels: int


def working_bytes(
    shape: Size,
    threads: int,
    exponent: float = Options.degree_exponent,
    num_communities: int | None = None,
    order: Order = Options.order,
) -> Working:
    """Estimate the memory of drawing by so many threads without the result; by default as many communities as classes."""
    V, K = shape.num_vertices, num_communities or shape.num_classes
    communities = np.min_scalar_type(K - 1).itemsize * V
    groups = 1 + (K if order == "random" else min(K, 2))
    drawing = drawing_bytes(V, shape.num_edges, exponent, groups=groups, threads=threads)
    return Working(
        communities + 2 * V + drawing,  # 2: propensities
        # A block for each thread, with its centroids, and the one that is taken.
        communities + 4 * _ROWS * shape.num_features * (2 * threads + 1),
        communities + split_bytes(V),
    )


def _checked_options(given: Mapping[str, Any]) -> Options:
    known = {field.name: field.default for field in dataclasses.fields(Options)}
    options = dict(given)
    for name, value in options.items():
        if name not in known:
            raise DatasetError(
                f"communities has no option {name!r}.{near_matches(name, [*known, 'size', 'split_seed'])}"
            )
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if name == "order":
            orders = typing.get_args(Order)
            _require(name, value, value in orders, " or ".join(orders))
        elif value is not None or known[name] is not None:
            is_real = name in _NUMBERS
            expected = "a number" if is_real else "an integer"
            _require(name, value, is_whole or (is_real and isinstance(value, float)), expected)
            if is_real:
                _require(name, value, math.isfinite(value) and value >= 0, "finite and ≥ 0")
                options[name] = float(value)
    return Options(**options)


def _shape(size: Size, options: Options) -> Size:
    if options.num_edges is not None and options.average_degree is not None:
        raise DatasetError("give num_edges or average_degree of communities, not both")
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(size)}
    shape = dataclasses.replace(size, **{name: value for name, value in given.items() if value is not None})
    if options.num_edges is None:
        degree = options.average_degree
        degree = size.num_edges / size.num_vertices if degree is None else degree
        shape = dataclasses.replace(shape, num_edges=2 * round(shape.num_vertices * degree / 2))
    return shape


def _check(shape: Size, num_communities: int, num_labelled: int | None, options: Options) -> None:
    V, E, C, K = shape.num_vertices, shape.num_edges, shape.num_classes, num_communities
    L = V if num_labelled is None else num_labelled
    most, of_labels = f"at most num_vertices, {V}", f"from 1 to num_vertices, {V}"
    for name, value, holds, expected in (
        ("seed", options.seed, options.seed >= 0, "≥ 0"),
        ("num_vertices", V, V >= 2, "≥ 2"),
        ("num_edges", E, E >= 0, "≥ 0"),
        ("num_features", shape.num_features, shape.num_features >= 1, "≥ 1"),
        ("num_classes", C, C >= 1, "≥ 1"),
        ("num_communities", K, K >= C, f"≥ {C}"),
        ("num_vertices", V, V < 2**31, "below 2³¹ (vertex ids are int32)"),
        ("num_edges", E, E % 2 == 0, "even: each undirected edge counts twice"),
        ("num_classes", C, C <= V, most),
        ("num_communities", K, K <= V, most),
        ("num_labelled", L, 1 <= L <= V, of_labels),
    ):
        _require(name, value, holds, expected)
    limits = {"homophily": (1 / K, 1), "signal": (0, 1e6), "label_noise": (0, 1), "degree_exponent": (1.01, 100)}
    for name, (low, high) in limits.items():
        value = getattr(options, name)
        _require(name, value, low <= value <= high, f"from {low:g} to {high:g}")


def _require(name: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise DatasetError(f"{name} of communities must be {expected}, got {value!r}")
