"""Reading the pickles of the planetoid files without running what is in them.

A pickle may name any function to call. Only what these files need is allowed: NumPy arrays, dictionaries, lists, and
the state of SciPy's compressed sparse rows, which is kept as the plain arrays it consists of (so that neither SciPy's
former layout nor its checks matter). Everything else is refused.
"""

from __future__ import annotations

import collections
import copyreg
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from dorylax.graph.datasets.base import DatasetError


class SparseRows:
    """What a pickled `csr_matrix` holds, unchecked; stands in for SciPy's class when a pickle asks for it.

    Attributes:
        arrays: `indptr`, `indices`, `data`, `_shape`, and what else was stored.
    """

    arrays: dict[str, Any]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.arrays = dict(state)


class _Array:
    """Stands in for NumPy's class when a pickle asks for it: that could be called, and takes any memory."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes | str) -> np.ndarray:
    """What NumPy calls by this name: an array without elements, which the pickle goes on to fill."""
    if kind is not _Array or shape != (0,):
        raise pickle.UnpicklingError(f"it asks for an array of shape {shape} before it has elements")
    return np.empty(0, code.decode() if isinstance(code, bytes) else code)


def _encode(text: str, encoding: str) -> bytes:
    """The bytes that a pickle keeps as text; other encodings than this one can make more of them than there are."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return text.encode("latin1")


# By their names in Python 2 and 3, NumPy 1 and 2, old and new SciPy.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): SparseRows,
    ("scipy.sparse._csr", "csr_matrix"): SparseRows,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
    ("copy_reg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs") from None


def load(path: Path) -> Any:
    """What the pickle in `path` holds, text of Python 2 read as latin-1.

    Raises:
        DatasetError: it is not a pickle, or holds anything but arrays, dictionaries, lists and sparse rows.
    """
    with path.open("rb") as file:
        try:
            return _Unpickler(file, encoding="latin1").load()
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise DatasetError(f"{path} is refused: {str(error) or type(error).__name__}") from error
