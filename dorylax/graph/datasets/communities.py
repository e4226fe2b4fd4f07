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
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from jaxtyping import Float32, Int32, UInt
from pydantic import Field, model_validator

from dorylax.aligned import empty
from dorylax.errors import InputError
from dorylax.graph.array_folder import FolderWriter, check_target, write_arrays
from dorylax.graph.data_shape import Size
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets.block_model import BlockModel, drawing_bytes, power_law_propensities
from dorylax.graph.datasets.random_streams import Stream
from dorylax.graph.rows import in_order, spans
from dorylax.graph.splits import split_bytes, stratified_split
from dorylax.graph.validate import check_disk, gibibytes
from dorylax.machine import cores, memory_limit, resident_bytes
from dorylax.settings.section import Count, Section

NAME = "communities"
SizeName = Literal["tiny", "small", "medium", "reddit-small", "reddit-large", "amazon", "friendster", "papers100m"]
DEFAULT_SIZE: SizeName = "small"

# Memory while generating is about 4 bytes an edge and 4 a feature: 1.2 GB for reddit-small, 7 GB for reddit-large,
# 14 GB for amazon (nearly all of it features), 26 GB for friendster, 75 GB for papers100m; `generate` does with 3 GB.
SIZES: dict[str, Size] = {
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

_ROWS = 1 << 12  # of a block of features; each block has its own random stream
_COMMUNITY_STREAM, _LABEL_STREAM, _CENTROID_STREAM, _FEATURE_STREAM, _LABELLED_STREAM = 11, 12, 13, 14, 15
_MOST_THREADS = 16
_BESIDE = 96 << 20  # of allocators and of Python
Progress = Callable[[int, int, str], object]
"""Called with the number of bytes written, their total, and the kind of the last ones."""


class Options(Section):
    """Options of `load("communities", …)`, except `split_seed`. Numbers that are None are those of the size."""

    section: ClassVar[str] = NAME

    size: SizeName = Field(default=DEFAULT_SIZE, description="size with the default numbers")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of graph, labels and features")
    num_vertices: Annotated[int, Field(ge=2, lt=2**31)] | None = Field(default=None, description="V; ids are int32")
    num_edges: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="E, directed edges, even: each undirected edge counts twice"
    )
    average_degree: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="E / V, instead of `num_edges`; None keeps that of the size"
    )
    num_features: Count | None = Field(default=None, description="F")
    num_classes: Count | None = Field(default=None, description="C")
    num_communities: Count | None = Field(
        default=None,
        description="K ≥ C; None for C. The class of community k is k mod C. In `order=community` the more there are, the "
        "nearer are neighbours: most are within V / K rows",
    )
    num_labelled: Count | None = Field(
        default=None,
        description="number of vertices with a label, chosen at random; None for all, and for papers100m the share of "
        "ogbn-papers100M",
    )
    order: Literal["random", "community"] = Field(
        default="random",
        description="order of the vertices; in `community` those of a community follow each other, so that no pass that "
        "finds communities and reorders vertices has to come after. They are different graphs of the same kind",
    )
    homophily: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.6, description="fraction of edges inside a community, at least 1/K: none more than by chance"
    )
    signal: Annotated[float, Field(ge=0, le=1e6)] = Field(
        default=1.5, description="distance of a class's features from the origin, in standard deviations of the noise"
    )
    label_noise: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.05,
        description="fraction of vertices with a random label: no model can do better than 1 - label_noise·(C-1)/C",
    )
    degree_exponent: Annotated[float, Field(ge=1.01, le=100)] = Field(
        default=2.5, description="exponent of the power law of degrees"
    )

    @model_validator(mode="after")
    def _fit_each_other(self) -> Options:
        V, E, C, K = self.shape.num_vertices, self.shape.num_edges, self.shape.num_classes, self.communities
        if self.num_edges is not None and self.average_degree is not None:
            raise InputError("give num_edges or average_degree of communities, not both")
        for name, value, holds, expected in (
            ("num_edges", E, E % 2 == 0, "even: each undirected edge counts twice"),
            ("num_classes", C, C <= V, f"at most num_vertices, {V}"),
            ("num_communities", K, C <= K <= V, f"from num_classes, {C}, to num_vertices, {V}"),
            ("num_labelled", self.labelled, self.labelled <= V, f"at most num_vertices, {V}"),
            ("homophily", self.homophily, self.homophily >= 1 / K, f"from 1/{K}, which is chance, to 1"),
        ):
            if not holds:
                raise InputError.of(self.key(name), f"must be {expected}, got {value}")
        return self

    @property
    def shape(self) -> Size:
        """V, E, F and C."""
        usual = SIZES[self.size]
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(usual)}
        shape = dataclasses.replace(usual, **{name: value for name, value in given.items() if value is not None})
        if self.num_edges is not None:
            return shape
        degree = usual.num_edges / usual.num_vertices if self.average_degree is None else self.average_degree
        return dataclasses.replace(shape, num_edges=2 * round(shape.num_vertices * degree / 2))

    @property
    def communities(self) -> int:
        """K."""
        return self.shape.num_classes if self.num_communities is None else self.num_communities

    @property
    def labelled(self) -> int:
        """The number of vertices with a label."""
        V = self.shape.num_vertices
        usual = -(-_LABELLED.get(self.size, SIZES[self.size].num_vertices) * V // SIZES[self.size].num_vertices)
        return usual if self.num_labelled is None else self.num_labelled


def load(*, split_seed: int = 0, **options: Any) -> Dataset:
    """Generate the data set of some `Options`.

    The split has 60 % training, 20 % validation and 20 % test vertices, by class. Raises an InputError for an unknown
    option, or a value that makes no graph.
    """
    drawn = Communities(Options(**options))
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
    split_seed: int = 0,
    memory: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Write the folder that saving `load`'s data set gives, in a few bytes a vertex; see `registry.generate`."""
    check_target(path)
    drawn = Communities(Options(**options))
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

    write_arrays(
        path, fill, provenance={"command": "dorylax generate", "options": repr({"size": DEFAULT_SIZE, **options})}
    )


def _threads(drawn: Communities, memory: int | None) -> int:
    """The most threads that memory suffices for."""
    if memory is None:
        limit = memory_limit()
        memory = sys.maxsize if limit is None else limit.bytes
    base = resident_bytes() + _BESIDE
    for threads in range(min(cores(), _MOST_THREADS), 0, -1):
        if (needed := base + drawn.bytes_in_parts(threads)) <= memory:
            return threads
    raise InputError(
        f"memory = {gibibytes(memory)} is too little to generate {drawn.shape.num_vertices:,} vertices and "
        f"{drawn.shape.num_edges:,} edges: {gibibytes(needed)} would do"
    )


@final
class Communities:
    """The graph, features and labels of some options, part by part.

    All parts are the same however they are cut and on any number of threads.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.shape = options, options.shape

    def bytes_in_parts(self, threads: int) -> int:
        """Peak memory of drawing the parts one after another by so many threads, with rows and features taken away."""
        working = working_bytes(self.shape, threads, self.options)
        return max(working._replace(labels=working.labels + (4 + 3) * self.shape.num_vertices))

    @cached_property
    def _communities(self) -> UInt[np.ndarray, " V"]:
        """Communities of equal size (to within one vertex), of the smallest unsigned type."""
        V, K = self.shape.num_vertices, self.options.communities
        small = np.min_scalar_type(K - 1)
        if self.options.order == "community":
            return np.repeat(np.arange(K, dtype=small), V // K + (np.arange(K) < V % K))
        communities, first = np.empty(V, small), 0
        for piece in self._stream(_COMMUNITY_STREAM).random_order(V):
            communities[first : first + len(piece)] = piece % K
            first += len(piece)
        return communities

    def block_model(self) -> BlockModel:
        """Return the model that draws the graph."""
        options, shape = self.options, self.shape
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
            wrong = uniform.uniform(stop - start) < self.options.label_noise
            labels[start:stop] = np.where(
                wrong, wrong_classes.below(C, stop - start), self._communities[start:stop] % C
            )
        if self.options.labelled < V:
            unlabelled, left = np.ones(V, bool), self.options.labelled
            for piece in self._stream(_LABELLED_STREAM).random_order(V):
                unlabelled[piece[:left]] = False
                left -= len(piece)
                if left <= 0:
                    break
            labels[unlabelled] = -1
        return labels

    def _stream(self, *key: int) -> Stream:
        return Stream(self.options.seed, *key)

    def _centroids(self) -> Float32[np.ndarray, "C F"]:
        # Integer coordinates: their sum of squares is exact in any order of addition, so the result is the same everywhere.
        bound = 1 << 16
        words = self._stream(_CENTROID_STREAM).below(bound, self.shape.num_classes * self.shape.num_features)
        direction = 2 * words.reshape(self.shape.num_classes, -1) - (bound - 1)
        length = np.sqrt((direction**2).sum(1).astype(np.float64))
        centroids: np.ndarray = (direction / length[:, None] * self.options.signal).astype(np.float32)
        return centroids


class Working(NamedTuple):
    """Peak memory of drawing in bytes, beside the result: of rows, of features, of labels and masks."""

    rows: int
    features: int
    labels: int


def working_bytes(shape: Size, threads: int, options: Options | None = None) -> Working:
    """Estimate the memory of drawing by so many threads without the result; by default for the usual options."""
    options = Options() if options is None else options
    V, K = shape.num_vertices, options.num_communities or shape.num_classes
    communities = np.min_scalar_type(K - 1).itemsize * V
    groups = 1 + (K if options.order == "random" else min(K, 2))
    drawing = drawing_bytes(V, shape.num_edges, options.degree_exponent, groups=groups, threads=threads)
    return Working(
        communities + 2 * V + drawing,  # 2: propensities
        # A block for each thread, with its centroids, and the one that is taken.
        communities + 4 * _ROWS * shape.num_features * (2 * threads + 1),
        communities + split_bytes(V),
    )
