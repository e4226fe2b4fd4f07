"""Conversion of users' arrays to NumPy arrays of real numbers or truth values.

Takes NumPy (memory maps are kept as they are), JAX, torch, pandas and SciPy sparse, lists, and whatever else NumPy
reads, without importing these libraries. Anything that would need a guess is refused with a remedy. Callers check the
*meaning* of an array.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np

from dorylax.graph.validate import GraphError

_REAL = "fiub"


def as_array(name: str, value: Any, text: str = "give numbers") -> np.ndarray:
    """Return an array of real numbers or truth values in this machine's byte order, without a copy of an array that is one.

    Args:
        name: Name of the array in messages.
        value: Any object; sparse matrices become dense.
        text: Remedy for text, in the message.

    Raises:
        GraphError: The value is no array of real numbers; the message names its type and the remedy.
    """
    array = value if type(value) in (np.ndarray, np.memmap) else _converted(name, value)
    kind = array.dtype.kind
    if kind not in _REAL:
        # Types that NumPy has from elsewhere (ml_dtypes, as JAX does) are all of kind V: bfloat16, int4, ….
        if kind == "V" and array.dtype.name.startswith(("bfloat", "float")):
            return array.astype(np.float32)
        if kind == "V" and array.dtype.name.startswith(("int", "uint")):
            return array.astype(np.int32)
        raise GraphError(f"{name}{_fault(array, text)}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def class_codes(name: str, value: Any) -> tuple[Any, list[str] | None]:
    """Return the codes of classes that have names, and the names; any other value comes back unchanged, with None.

    A categorical pandas column gives its codes, text `[V]` the positions in the sorted names; -1 stands for a missing
    value.

    Raises a GraphError if categories are numbers other than 0, 1, 2, …, so that value and code could both be meant, or
    if something else stands among text.
    """
    if _is_pandas(value) and str(getattr(value, "dtype", "")) == "category":
        categories = np.asarray(value.dtype.categories)
        numeric = categories.dtype.kind in _REAL
        if numeric and not np.array_equal(categories, np.arange(len(categories))):
            listed = ", ".join(map(str, categories[:3].tolist())) + (", …" if len(categories) > 3 else "")
            raise GraphError(
                f"{name} is categorical with the numbers {listed}: give its codes ({name}.cat.codes) or its numbers "
                f"({name}.astype({categories.dtype}))"
            )
        _check_index(name, value)
        codes = value.cat.codes if hasattr(value, "cat") else value.codes
        return np.asarray(codes), None if numeric else [str(one) for one in categories]
    texts = _texts(name, value)
    if texts is None:
        return value, None
    if _is_pandas(value):
        _check_index(name, value)
    names = sorted(set(texts) - {""})
    codes = {text: code for code, text in enumerate(names)}
    return np.array([codes.get(text, -1) for text in texts], np.int32), names


def _texts(name: str, value: Any) -> list[str] | None:
    """Text `[V]`, empty where a value is missing; None where the first value is something else."""
    if isinstance(value, np.ndarray) or _is_pandas(value):
        if value.ndim != 1 or getattr(value.dtype, "kind", "O") not in "OUT":
            return None
        value = value.tolist()
    elif not isinstance(value, list | tuple):
        return None
    if not isinstance(next((one for one in value if not _is_missing(one)), None), str):
        return None
    texts = ["" if _is_missing(one) else one for one in value]
    for k, one in enumerate(texts):
        if not isinstance(one, str):
            raise GraphError(f"{name}[{k}] = {one!r} stands among text: give every class as text")
    return texts


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def _converted(name: str, value: Any) -> np.ndarray:
    if value is None:
        raise GraphError(f"{name} is None: give an array, a list, a table or a tensor of numbers")
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise GraphError(f"{name} is a masked array with masked elements: fill them first ({name}.filled(…))")
        return np.asarray(value.data)
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return _of_torch(name, value)
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        return _of_sparse(name, value)
    if _is_pandas(value):
        return _of_pandas(name, value)
    if isinstance(value, (dict, set, frozenset)):
        raise GraphError(f"{name} is a {type(value).__name__}: give an array or a list, one entry per row")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        if isinstance(error, ValueError) and "inhomogeneous" in str(error):
            raise GraphError(f"{name} has rows of different lengths: give every row as many numbers") from error
        raise _unreadable(name, value, error) from error
    return array


def _unreadable(name: str, value: Any, error: Exception) -> GraphError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return GraphError(f"{name} ({type(value).__name__}) cannot be read as an array: {reason}")


def _of_torch(name: str, tensor: Any) -> np.ndarray:
    try:
        tensor = tensor.detach()
        if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
            tensor = _dense(name, tensor, tensor.to_dense)
        tensor = tensor.cpu()
        return np.asarray((tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy())
    except (RuntimeError, TypeError) as error:  # on the meta device, quantised, conjugated
        raise _unreadable(name, tensor, error) from error


def _of_sparse(name: str, matrix: Any) -> np.ndarray:
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize > 4:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is refused later
            matrix = matrix.astype(np.float32)
    return np.asarray(_dense(name, matrix, matrix.toarray))


def _dense(name: str, sparse: Any, make: Any) -> Any:
    try:
        return make()
    except (MemoryError, RuntimeError) as error:  # RuntimeError: torch's allocator
        shape = list(sparse.shape)
        raise GraphError(
            f"{name} is sparse {shape} and too large to be made dense: reduce its columns, for example by "
            "sklearn.decomposition.TruncatedSVD"
        ) from error


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def _of_pandas(name: str, table: Any) -> np.ndarray:
    """A DataFrame, Series, Index or extension array."""
    columns = [(name, table)]
    if table.ndim == 2:
        columns = [(f"{name}[{key!r}]", table.iloc[:, k]) for k, key in enumerate(table)]
    dtypes = [_numpy_dtype(column.dtype) for _, column in columns]
    if wrong := [column for column, dtype in zip(columns, dtypes, strict=True) if dtype.kind not in _REAL]:
        if table.ndim != 2:
            _check_index(name, table)
            return np.asarray(table)
        listed = ", ".join(f"{label} ({column.dtype})" for label, column in wrong)
        raise GraphError(f"{listed} holds no numbers: drop such columns or encode them (pandas.get_dummies)")
    _check_index(name, table)
    for label, column in columns:
        if not isinstance(column.dtype, np.dtype) and (missing := np.flatnonzero(np.asarray(column.isna()))).size:
            raise GraphError(f"{label}[{missing[0]}] is missing (NA): fill it (fillna)")
    return np.asarray(table.to_numpy(dtype=np.result_type(*dtypes) if dtypes else np.float32))


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Of a column; object where NumPy has none for it."""
    found = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    return found if isinstance(found, np.dtype) else np.dtype(object)


def _check_index(name: str, table: Any) -> None:
    """Refuses rows that are numbered in a different order than they are stored in: either could be meant."""
    index = getattr(table, "index", None)
    if index is None or getattr(index.dtype, "kind", "O") not in "iu":
        return
    numbers = np.asarray(index)
    rows = np.arange(len(numbers))
    if not np.array_equal(numbers, rows) and np.array_equal(np.sort(numbers), rows):
        raise GraphError(
            f"{name} has rows numbered in a different order than they are stored in: {name}.sort_index() if its index says "
            f"which row is which, {name}.reset_index(drop=True) if it does not"
        )


def _fault(array: np.ndarray, text: str) -> str:
    kind, dtype = array.dtype.kind, array.dtype
    if kind == "c":
        return f" is complex ({dtype}): give real numbers, for example real and imaginary parts as columns"
    if kind in "SUT":
        return f" holds text ({dtype}): {text}"
    if kind in "mM":
        return f" holds dates or times ({dtype}): give numbers"
    if dtype.names is not None:
        return " is a structured array: give plain columns (numpy.lib.recfunctions.structured_to_unstructured)"
    if kind != "O":
        return f" must hold real numbers, got {dtype}"
    if array.ndim == 0:
        return f" is of type {type(array.item()).__name__}: give an array or a list, one entry per row"
    for index, element in np.ndenumerate(array):
        if isinstance(element, str):
            return f" holds text ({element!r}): {text}"
        if not isinstance(element, (int, float, np.number, np.bool_)):
            found = "None" if element is None else f"an object of type {type(element).__name__}"
            return f"[{', '.join(map(str, index))}] is {found}: give a number"
    return " has the dtype object: all its elements are numbers, .astype(np.float64) says so"


def stored_names(what: str, names: Any) -> np.ndarray:
    """Names as archives store them: integers `[N]`, or texts as UTF-8 bytes `[N]`; stored names stay as they are.

    Raises a GraphError, in which `what` names the argument, for NUL, with which NumPy pads text, and for invalid
    Unicode.
    """
    if isinstance(names, np.ndarray) and names.dtype.kind in "iuS":
        return names
    values = names.tolist() if hasattr(names, "tolist") else list(names)
    if all(isinstance(value, Integral) and -(2**63) <= int(value) < 2**63 for value in values):
        return np.array(values, np.int64)
    found = []
    for k, value in enumerate(values):
        text = str(value)
        if "\0" in text:
            raise GraphError(f"{what}[{k}] = {text!r} contains NUL: rename it")
        try:
            found.append(text.encode())
        except UnicodeEncodeError:
            raise GraphError(f"{what}[{k}] = {text!r} is not valid Unicode: rename it") from None
    return np.array(found)


def shown_names(stored: np.ndarray) -> np.ndarray:
    """Stored names as integers or text `[N]`; bytes that are not UTF-8 appear as escapes."""
    return np.char.decode(stored, "utf-8", "backslashreplace") if stored.dtype.kind == "S" else stored
