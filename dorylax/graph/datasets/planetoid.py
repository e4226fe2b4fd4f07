"""cora, citeseer, pubmed, with the public split.

Z. Yang, W. Cohen, R. Salakhutdinov, "Revisiting semi-supervised learning with graph embeddings", ICML 2016. Eight files
each: features and one-hot labels of the training vertices (x, y), of the test vertices (tx, ty), of all but the test
vertices (allx, ally), adjacency lists (graph), and the ids of the test vertices in the order of tx (test.index).

The split is the one everybody reports on: 20 vertices a class train, the 500 after them validate, 1,000 test. 15
isolated vertices of citeseer are listed nowhere: they get zero features, class 0, and are in no mask. Edges are made
undirected and unique; self-loops stay. Features are as published: row-normalising is `Dataset.row_normalised`'s.

A pickle may name any function to call. Only what these files need is allowed: NumPy arrays, dictionaries, lists, and
the state of SciPy's compressed sparse rows, which is kept as the plain arrays it consists of (so that neither SciPy's
former layout nor its checks matter). Everything else is refused.
"""

from __future__ import annotations

import collections
import copyreg
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.errors import InputError
from dorylax.graph.array_names import MASKS
from dorylax.graph.features import dense_rows
from dorylax.graph.graph import Graph
from dorylax.graph.validate import check_room

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_VALIDATION = 500


def read(files: Mapping[str, Path]) -> dict[str, Any]:
    """Read the eight files.

    Raises:
        InputError: A file is not what its name says, or holds more than data.
        GraphError: An edge to a vertex that does not exist, or features that do not fit in memory.
    """
    by_part = {name.split(".", 2)[2]: path for name, path in files.items()}
    y, ty, ally = (_one_hot(by_part[part]) for part in ("y", "ty", "ally"))
    tx, allx = (_features(by_part[part]) for part in ("tx", "allx"))
    test = _ids(by_part["test.index"])
    if not (len(test) == len(tx) == len(ty) and len(allx) == len(ally) and (test >= len(allx)).all()):
        raise InputError(
            f"{by_part['test.index'].parent}: the files do not fit each other: {len(test)} test ids, "
            f"{len(tx)} rows in tx, {len(ty)} in ty, {len(allx)} in allx, {len(ally)} in ally"
        )
    num_vertices = max(len(allx), int(test.max(initial=-1)) + 1)
    check_room(f"{by_part['test.index']}: features of {num_vertices:,} vertices", 4 * num_vertices * allx.shape[1])
    features = np.zeros((num_vertices, allx.shape[1]), np.float32)
    labels = np.zeros(num_vertices, np.int32)
    features[: len(allx)], features[test] = allx, tx
    labels[: len(ally)], labels[test] = ally.argmax(1), ty.argmax(1)
    others = np.arange(len(allx))
    masks = (others[: len(y)], others[len(y) : len(y) + _VALIDATION], test)
    return {
        "graph": _graph(by_part["graph"], num_vertices),
        "features": features,
        "labels": labels,
        "num_classes": ally.shape[1],
        **{mask: np.isin(np.arange(num_vertices), ids) for mask, ids in zip(MASKS, masks, strict=True)},
    }


def _graph(path: Path, num_vertices: int) -> Graph:
    lists = load(path)
    try:
        if (entries := sum(map(len, lists.values()))) > path.stat().st_size:  # one list, listed again and again
            raise ValueError(f"its {path.stat().st_size:,} bytes would be {entries:,} edges")
        sources = np.repeat(np.array(list(lists), np.int64), [len(ends) for ends in lists.values()])
        targets = np.array([end for ends in lists.values() for end in ends], np.int64)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path} holds no adjacency lists: {error}") from error
    return Graph.from_coo(sources, targets, num_vertices, edge_ids=False).symmetrise()


def _features(path: Path) -> np.ndarray:
    rows = load(path)
    if not isinstance(rows, SparseRows):
        raise InputError(f"{path} holds {type(rows).__name__}, not a sparse matrix")
    try:
        indptr, indices, data = (np.asarray(rows.arrays[name]) for name in ("indptr", "indices", "data"))
        return dense_rows(indptr, indices, data, rows.arrays["_shape"], "")
    except KeyError as error:
        raise InputError(f"{path} holds a sparse matrix without {error}") from error


def _one_hot(path: Path) -> np.ndarray:
    labels: Any = load(path)
    if not (isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "iuf"):
        raise InputError(f"{path} holds no matrix of labels")
    return labels


def _ids(path: Path) -> np.ndarray:
    try:
        return np.array(path.read_text("ascii").split(), np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a list of vertex ids: {error}") from error


class SparseRows:
    """Content of a pickled `csr_matrix`, unchecked; stands in for SciPy's class when a pickle asks for it.

    `arrays` holds `indptr`, `indices`, `data`, `_shape`, and whatever else was stored.
    """

    arrays: dict[str, Any]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.arrays = dict(state)


class _Array:
    """Stands in for NumPy's class when a pickle asks for it: that could be called, and takes any memory."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes | str) -> np.ndarray:
    """What NumPy calls by this name: an array without elements, which the pickle then fills."""
    if kind is not _Array or shape != (0,):
        raise pickle.UnpicklingError(f"it asks for an array of shape {shape} before it has elements")
    return np.empty(0, code.decode() if isinstance(code, bytes) else code)


def _encode(text: str, encoding: str) -> bytes:
    """The bytes that a pickle keeps as text; other encodings than this one can make more of them than there are."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return text.encode("latin1")


# Modules of Python 2, NumPy 1 and old SciPy by their present names.
_RENAMED = {
    **{"numpy.core.multiarray": "numpy._core.multiarray", "scipy.sparse.csr": "scipy.sparse._csr"},
    **{"__builtin__": "builtins", "copy_reg": "copyreg"},
}
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse._csr", "csr_matrix"): SparseRows,
    ("collections", "defaultdict"): collections.defaultdict,
    ("builtins", "list"): list,
    ("builtins", "object"): object,
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[_RENAMED.get(module, module), name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs") from None


def load(path: Path) -> Any:
    """The content of a pickle, text of Python 2 read as latin-1.

    Raises a InputError for anything but a pickle of arrays, dictionaries, lists and sparse rows.
    """
    with path.open("rb") as file:
        try:
            return _Unpickler(file, encoding="latin1").load()
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise InputError(f"{path} is refused: {str(error) or type(error).__name__}") from error
