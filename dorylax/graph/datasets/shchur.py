"""amazon-photo, amazon-computers, coauthor-cs, coauthor-physics.

O. Shchur et al., "Pitfalls of graph neural network evaluation", 2018 (arXiv:1811.05868); one npz archive each, with the
adjacency matrix and the features in compressed sparse rows. The archives also hold pickled Python objects (names of
vertices and the like): these are never opened. Undirected here: an edge in either direction counts as both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dorylax.graph import npz
from dorylax.graph.datasets.base import Contents, Published, Size, Source
from dorylax.graph.graph import Graph
from dorylax.graph.sparse_rows import dense_rows

_BASE = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"


def read(files: Mapping[str, Path]) -> Contents:
    """Reads one archive.

    Raises:
        GraphError: it is not an npz archive, lacks arrays, or they do not fit each other.
    """
    (file,) = files.values()
    with npz.open_npz(file) as archive:
        indptr, indices, labels = (archive.fetch(name) for name in ("adj_indptr", "adj_indices", "labels"))
        if "attr_matrix" in archive:
            features = archive.fetch("attr_matrix")
        else:
            starts, places, values, shape = (
                archive.fetch(f"attr_{part}") for part in ("indptr", "indices", "data", "shape")
            )
            features = dense_rows(starts, places, values, shape, "attr_")
        # Which direction the rows are in does not matter: the edges are made symmetric.
        graph = Graph.from_csr(indptr, indices, symmetric=False, edge_ids=False).symmetrise()
        return Contents(graph, features, labels.astype(np.int32), int(labels.max()) + 1)


def _published(name: str, file: str, sha256: str, summary: str, size: Size) -> Published:
    return Published(name, summary, size, (Source(f"shchur/{file}", _BASE + file, sha256),), read)


PUBLISHED = (
    _published(
        "amazon-photo",
        "amazon_electronics_photo.npz",
        "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
        "products bought together, words of reviews",
        Size(7_650, 238_163, 745, 8),
    ),
    _published(
        "amazon-computers",
        "amazon_electronics_computers.npz",
        "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
        "products bought together, words of reviews",
        Size(13_752, 491_722, 767, 10),
    ),
    _published(
        "coauthor-cs",
        "ms_academic_cs.npz",
        "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
        "authors who wrote together, keywords of papers",
        Size(18_333, 163_788, 6_805, 15),
    ),
    _published(
        "coauthor-physics",
        "ms_academic_phy.npz",
        "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
        "authors who wrote together, keywords of papers",
        Size(34_493, 495_924, 8_415, 5),
    ),
)
