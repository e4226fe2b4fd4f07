"""Reading the pickles of the planetoid files without running what is in them.

A pickle may name any function to call. Only what these files need is allowed: NumPy arrays, dictionaries, lists, and
the state of SciPy's compressed sparse rows, which is kept as the plain arrays it consists of (so that neither SciPy's
former layout nor its checks matter). Everything else is refused.
"""

from __future__ import annotations

import _codecs
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


# How NumPy itself rebuilds arrays; the function has no public name, its module had two.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
# By their names in Python 2 and 3, NumPy 1 and 2, old and new SciPy.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
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
    ("_codecs", "encode"): _codecs.encode,
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
            raise DatasetError(f"{path} is refused: {error}") from error
