"""Published data sets: a row of a table each, and the formats that consist of arrays (`planetoid` has the pickles).

- amazon-photo, amazon-computers, coauthor-cs, coauthor-physics: O. Shchur et al., "Pitfalls of graph neural network
  evaluation", 2018 (arXiv:1811.05868). An npz archive each, with the adjacency matrix and the features in compressed sparse
  rows. The archives also hold pickled Python objects (such as names of vertices): these are never opened. Undirected
  here: an edge in either direction counts as both.
- reddit: posts joined where the same user commented on both; the class is the community a post is in. W. Hamilton,
  R. Ying, J. Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017. One zip archive with
  `reddit_data.npz` (feature, label, node_types: 1 train, 2 validation, 3 test) and `reddit_graph.npz` (a SciPy COO matrix).
- ogbn-arxiv, ogbn-products: W. Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", NeurIPS 2020. A
  zip archive of gzipped tables: `raw/edge.csv.gz` (source, target), `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`,
  `raw/num-node-list.csv.gz`, and the official split, `split/<by>/{train,valid,test}.csv.gz`. Undirected here, as the papers
  that report on them have it: a citation counts in both directions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.array_names import MASKS
from dorylax.graph.data_shape import Size
from dorylax.graph.datasets import planetoid
from dorylax.graph.datasets.download import Source
from dorylax.graph.features import dense_rows
from dorylax.graph.graph import Graph
from dorylax.graph.stored import open_arrays

Reader = Callable[[Mapping[str, Path]], dict[str, Any]]
"""Makes the arguments of `Dataset` from files under their names."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A named data set and its files.

    Attributes:
        name: Name for `load`.
        summary: One line for people.
        size: Published numbers, edges in both directions.
        sources: Its files.
        read: Makes the arguments of `Dataset` from the files under their names (last part of `Source.path`); features
            as published, masks only if there is a public split.
        slow: Whether the cache keeps the result, because reading takes long.
    """

    name: str
    summary: str
    size: Size
    sources: tuple[Source, ...]
    read: Reader
    slow: bool = False


def _read_shchur(files: Mapping[str, Path]) -> dict[str, Any]:
    """Raises a GraphError if the file is not an npz archive, lacks arrays, or they do not fit each other."""
    (file,) = files.values()
    with open_arrays(file) as archive:
        indptr, indices, labels = (archive.fetch(name) for name in ("adj_indptr", "adj_indices", "labels"))
        if "attr_matrix" in archive:
            features = archive.fetch("attr_matrix")
        else:
            parts = ("indptr", "indices", "data", "shape")
            starts, columns, values, shape = (archive.fetch(f"attr_{part}") for part in parts)
            features = dense_rows(starts, columns, values, shape, "attr_")
        # Which direction the rows are in does not matter: the edges are made symmetric.
        graph = Graph.from_csr(indptr, indices, symmetric=False, edge_ids=False).symmetrise()
        return {"graph": graph, "features": features, "labels": labels}


def _read_reddit(files: Mapping[str, Path]) -> dict[str, Any]:
    """Raises a InputError for other files, a GraphError if an array is missing, or arrays do not fit each other."""
    (file,) = files.values()
    with _zipped(file, "the reddit data set") as archive:
        data = _arrays(archive, file, "reddit_data.npz", ("feature", "label", "node_types"))
        edges = _arrays(archive, file, "reddit_graph.npz", ("row", "col"))
    labels, kind = data["label"].astype(np.int32), data["node_types"]
    graph = Graph.from_coo(edges["row"], edges["col"], len(labels), edge_ids=False)
    masks = {mask: kind == number for number, mask in enumerate(MASKS, 1)}
    return {"graph": graph, "features": data["feature"], "labels": labels, **masks}


def _arrays(archive: zipfile.ZipFile, file: Path, member: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    # An npz archive is read by seeking, which in a compressed member of another archive would be very slow.
    with (
        tempfile.TemporaryDirectory(dir=file.parent) as folder,
        open_arrays(archive.extract(member, folder)) as arrays,
    ):
        return {name: arrays.fetch(name) for name in names}


def _read_ogb(folder: str, split: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """Reads an archive whose tables lie below `folder` and whose official split is called `split`."""
    (file,) = files.values()
    with _zipped(file, "an OGB data set") as archive:
        num_vertices = int(_table(archive, f"{folder}/raw/num-node-list.csv.gz", np.int64)[0, 0])
        ids = np.arange(num_vertices)
        labels = _table(archive, f"{folder}/raw/node-label.csv.gz", np.int32)[:, 0]
        features = _table(archive, f"{folder}/raw/node-feat.csv.gz", np.float32)
        edges = _table(archive, f"{folder}/raw/edge.csv.gz", np.int32, columns=2)
        masks = {
            mask: np.isin(ids, _table(archive, f"{folder}/split/{split}/{part}.csv.gz", np.int64, columns=1))
            for mask, part in zip(MASKS, ("train", "valid", "test"), strict=True)
        }
    graph = Graph.from_coo(edges[:, 0], edges[:, 1], num_vertices, edge_ids=False).symmetrise()
    return {"graph": graph, "features": features, "labels": labels, **masks}


def _table(archive: zipfile.ZipFile, member: str, dtype: Any, columns: int | None = None) -> np.ndarray:
    """A gzipped table of numbers, `[rows, columns]`."""
    with archive.open(member) as packed, gzip.open(packed) as raw, io.TextIOWrapper(raw, "ascii") as text:
        try:
            table = np.loadtxt(text, dtype=dtype, delimiter=",", ndmin=2)
        except ValueError as error:
            raise InputError(f"{archive.filename}: {member} is not a table of numbers: {error}") from error
    return table if columns is None else table.reshape(-1, columns)


@contextlib.contextmanager
def _zipped(file: Path, what: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"{file} is not the archive of {what}: {error}") from error


_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
_OGB = "http://snap.stanford.edu/ogb/data/nodeproppred/"


_SHA256 = {
    "shchur/amazon_electronics_photo.npz": "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
    "shchur/amazon_electronics_computers.npz": "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
    "shchur/ms_academic_cs.npz": "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
    "shchur/ms_academic_phy.npz": "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
    "reddit/reddit.zip": "9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
    "ogb/arxiv.zip": "49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276",
    "ogb/products.zip": "5ea0a112edaec2141c0a2a612dd4aed58df97ff3e1ab1a0ca8238f43cbbb50a8",
}


def _entry(name: str, summary: str, size: Size, read: Reader, url: str, *paths: str, slow: bool = False) -> Published:
    """A data set of files that lie below `paths` in the cache, and under the same names below `url`."""
    sources = tuple(Source(path, url + path.rpartition("/")[2], _SHA256.get(path)) for path in paths)
    return Published(name, summary, size, sources, read, slow)


def _citations(name: str, summary: str, size: Size) -> Published:
    files = (f"planetoid/ind.{name}.{part}" for part in planetoid.PARTS)
    return _entry(name, summary, size, planetoid.read, _PLANETOID, *files)


def _shchur(name: str, summary: str, size: Size, file: str) -> Published:
    return _entry(name, summary, size, _read_shchur, _SHCHUR, f"shchur/{file}")


def _ogb(name: str, summary: str, size: Size, split: str) -> Published:
    folder = name.removeprefix("ogbn-")
    read = functools.partial(_read_ogb, folder, split)
    return _entry(name, summary, size, read, _OGB, f"ogb/{folder}.zip", slow=True)


_CITED, _SOLD = "citations between papers (made undirected)", "products bought together, words of descriptions"
_BOUGHT, _WROTE = "products bought together, words of reviews", "authors who wrote together, keywords of papers"
_ENTRIES = (
    _citations("cora", "citations between machine learning papers, words", Size(2_708, 10_556, 1_433, 7)),
    _citations("citeseer", "citations between computer science papers, words", Size(3_327, 9_228, 3_703, 6)),
    _citations("pubmed", "citations between papers on diabetes, TF-IDF of words", Size(19_717, 88_651, 500, 3)),
    _shchur("amazon-photo", _BOUGHT, Size(7_650, 238_163, 745, 8), "amazon_electronics_photo.npz"),
    _shchur("amazon-computers", _BOUGHT, Size(13_752, 491_722, 767, 10), "amazon_electronics_computers.npz"),
    _shchur("coauthor-cs", _WROTE, Size(18_333, 163_788, 6_805, 15), "ms_academic_cs.npz"),
    _shchur("coauthor-physics", _WROTE, Size(34_493, 495_924, 8_415, 5), "ms_academic_phy.npz"),
    _entry(
        "reddit",
        "posts with a common commenter, word vectors",
        Size(232_965, 114_615_892, 602, 41),
        _read_reddit,
        "https://data.dgl.ai/dataset/",
        "reddit/reddit.zip",
        slow=True,
    ),
    _ogb("ogbn-arxiv", f"{_CITED}, word vectors, split by year", Size(169_343, 2_315_598, 128, 40), "time"),
    _ogb("ogbn-products", f"{_SOLD}, split by sales rank", Size(2_449_029, 123_718_152, 100, 47), "sales_ranking"),
)
PUBLISHED = {entry.name: entry for entry in _ENTRIES}
