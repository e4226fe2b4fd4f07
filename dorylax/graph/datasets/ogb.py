"""ogbn-arxiv and ogbn-products, from the archives of the Open Graph Benchmark.

W. Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", NeurIPS 2020. A zip archive of gzipped
tables: `raw/edge.csv.gz` (source, target), `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`, `raw/num-node-list.csv.gz`,
and the official split, `split/<by>/{train,valid,test}.csv.gz`. Undirected here, as the papers that report on them have
it: a citation counts in both directions.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.datasets.base import Contents, DatasetError, Published, Size, Source, mask_of
from dorylax.graph.graph import Graph

_BASE = "http://snap.stanford.edu/ogb/data/nodeproppred/"


def reader(folder: str, split: str) -> Callable[[Mapping[str, Path]], Contents]:
    """A `read` for archives whose tables lie below `folder` and whose official split is called `split`."""

    def read(files: Mapping[str, Path]) -> Contents:
        (file,) = files.values()
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, folder, split)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DatasetError(f"{file} is not the archive of an OGB data set: {error}") from error

    return read


def _read(archive: zipfile.ZipFile, folder: str, split: str) -> Contents:
    num_vertices = int(_table(archive, f"{folder}/raw/num-node-list.csv.gz", np.int64)[0, 0])
    labels = _table(archive, f"{folder}/raw/node-label.csv.gz", np.int32)[:, 0]
    features = _table(archive, f"{folder}/raw/node-feat.csv.gz", np.float32)
    edges = _table(archive, f"{folder}/raw/edge.csv.gz", np.int32, columns=2)
    graph = Graph.from_coo(edges[:, 0], edges[:, 1], num_vertices, edge_ids=False).symmetrise()
    train, validation, test = (
        mask_of(_table(archive, f"{folder}/split/{split}/{part}.csv.gz", np.int64, columns=1)[:, 0], num_vertices)
        for part in ("train", "valid", "test")
    )
    return Contents(graph, features, labels, int(labels.max()) + 1, (train, validation, test))


def _table(archive: zipfile.ZipFile, member: str, dtype: Any, columns: int | None = None) -> np.ndarray:
    """A gzipped table of numbers, `[rows, columns]`."""
    with archive.open(member) as packed, gzip.open(packed) as raw, io.TextIOWrapper(raw, "ascii") as text:
        try:
            table = np.loadtxt(text, dtype=dtype, delimiter=",", ndmin=2)
        except ValueError as error:
            raise DatasetError(f"{archive.filename}: {member} is not a table of numbers: {error}") from error
    return table if columns is None else table.reshape(-1, columns)


PUBLISHED = (
    Published(
        "ogbn-arxiv",
        "citations between papers (made undirected), word vectors, split by year",
        Size(169_343, 2_315_598, 128, 40),
        (
            Source(
                "ogb/arxiv.zip",
                _BASE + "arxiv.zip",
                "49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276",
            ),
        ),
        reader("arxiv", "time"),
        slow=True,
    ),
    Published(
        "ogbn-products",
        "products bought together, words of descriptions, split by sales rank",
        Size(2_449_029, 123_718_152, 100, 47),
        (
            Source(
                "ogb/products.zip",
                _BASE + "products.zip",
                "5ea0a112edaec2141c0a2a612dd4aed58df97ff3e1ab1a0ca8238f43cbbb50a8",
            ),
        ),
        reader("products", "sales_ranking"),
        slow=True,
    ),
)
