"""What users give as data: one table of kinds, each with what becomes of it or the exact line that refuses it.

`tests/test_inputs.py` tries every row; docs/inputs.md is written from them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

V, F, C = 6, 4, 3
X = np.random.default_rng(0).integers(-8, 8, (V, F)).astype(np.float32) / 4  # bfloat16 holds these, too
Y = (np.arange(V) % C).astype(np.int32)
MASK = np.array([True, False, False, True, False, False])
Z = (np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])).astype(np.float32)


class Kind(NamedTuple):
    """One kind of input.

    Attributes:
        what: in words.
        given: makes the arguments that are not the usual ones.
        line: the whole message where it is refused.
        becomes: attribute → value where it works.
        note: what the page says besides that it works.
    """

    what: str
    given: Callable[[], dict[str, Any]]
    line: str | None = None
    becomes: dict[str, Any] | None = None
    note: str = ""


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")


def _features(what: str, make: Callable[[], Any], line: str | None = None, note: str = "") -> Kind:
    return Kind(what, lambda: {"features": make()}, line, {"features": X}, note)


def _labels(
    what: str,
    make: Callable[[], Any],
    line: str | None = None,
    *,
    to: Any = Y,
    classes: Any = C,
    note: str = "",
    **given: Any,
) -> Kind:
    return Kind(what, lambda: {"labels": make(), **given}, line, {"labels": to, "num_classes": classes}, note)


def _mask(what: str, make: Callable[[], Any], line: str | None = None, *, to: Any = MASK, note: str = "") -> Kind:
    return Kind(what, lambda: {"train_mask": make()}, line, {"train_mask": to}, note)


def _input(what: str, make: Callable[[], Any], line: str | None = None, *, to: Any = None, note: str = "") -> Kind:
    return Kind(what, lambda: {"vertex_inputs": {"pos": make()}}, line, {"vertex_inputs": {"pos": to}}, note)


def _with(array: np.ndarray, position: Any, value: Any) -> np.ndarray:
    changed = array.copy()
    changed[position] = value
    return changed


def _text_table() -> pd.DataFrame:
    return pd.DataFrame(X, columns=list("abcd")).assign(city=pd.Series(["x"] * V, dtype=object))


def _mapped() -> np.ndarray:
    import tempfile

    with tempfile.TemporaryFile() as file:
        np.save(file, X)
        file.flush()
        return np.memmap(file, np.float32, "r", file.tell() - X.nbytes, X.shape)


FEATURES = [
    _features("float32 `[V, F]`", lambda: X, note="kept without a copy"),
    _features("float64, float16, any integers", lambda: X.astype(np.float64), note="converted to float32"),
    _features("a JAX array", lambda: jnp.asarray(X)),
    _features("a JAX array in bfloat16", lambda: jnp.asarray(X, jnp.bfloat16)),
    _features("a torch tensor, also with a gradient", lambda: torch().tensor(X, requires_grad=True)),
    _features("a torch tensor in bfloat16", lambda: torch().tensor(X).bfloat16()),
    _features("a sparse torch tensor", lambda: torch().tensor(X).to_sparse(), note="converted to a dense array"),
    _features("a list of rows", X.tolist),
    _features("a pandas DataFrame of numbers", lambda: pd.DataFrame(X)),
    _features("a DataFrame with nullable columns", lambda: pd.DataFrame(X.astype(np.float64)).convert_dtypes()),
    _features(
        "a DataFrame whose index is your own ids",
        lambda: pd.DataFrame(X, index=range(90, 90 + V)),
        note="rows in stored order",
    ),
    _features(
        "a SciPy sparse matrix or array, any format",
        lambda: scipy.sparse.csc_array(X),
        note="converted to a dense array",
    ),
    _features("a memory map", _mapped, note="kept without a copy"),
    _features("in Fortran order", lambda: np.asfortranarray(X)),
    _features("big-endian", lambda: X.astype(">f8")),
    _features("read-only", lambda: np.frombuffer(X.tobytes(), np.float32).reshape(V, F)),
    _features("a masked array with nothing masked", lambda: np.ma.array(X)),
    _features(
        "a DataFrame with columns of text",
        _text_table,
        "features['city'] (object) holds no numbers: drop such columns or encode them (pandas.get_dummies)",
    ),
    _features(
        "a DataFrame with missing values (NA)",
        lambda: pd.DataFrame({"age": pd.array([1, None, 3, 4, 5, 6], dtype="Int64")}),
        "features['age'][1] is missing (NA): fill it (fillna)",
    ),
    _features(
        "a DataFrame with reordered index",
        lambda: pd.DataFrame(X, index=range(V)[::-1]),
        "features has rows numbered in a different order than they are stored in: features.sort_index() if its index says "
        "which row is which, features.reset_index(drop=True) if it does not",
    ),
    _features(
        "sparse and too large to be made dense",
        lambda: scipy.sparse.csr_array((V, 10**13), dtype=np.float32),
        "features is sparse [6, 10000000000000] and too large to be made dense: reduce its columns, for example by "
        "sklearn.decomposition.TruncatedSVD",
    ),
    _features("NaN", lambda: _with(X, (2, 3), np.nan), "features[2, 3] = nan is not finite: replace or drop it"),
    _features("infinity", lambda: _with(X, (5, 0), -np.inf), "features[5, 0] = -inf is not finite: replace or drop it"),
    _features(
        "a number too large for float32",
        lambda: _with(X.astype(np.float64), (1, 1), 1e300),
        "features[1, 1] = inf is not finite: replace or drop it",
    ),
    _features(
        "complex numbers",
        lambda: X * 1j,
        "features is complex (complex64): give real numbers, for example real and imaginary parts as columns",
    ),
    _features(
        "an object array of numbers",
        lambda: X.astype(object),
        "features has the dtype object: all its elements are numbers, .astype(np.float64) says so",
    ),
    _features(
        "an object array with None",
        lambda: _with(X.astype(object), (0, 1), None),
        "features[0, 1] is None: give a number",
    ),
    _features("text", lambda: X.astype("U5"), "features holds text (<U5): encode it as numbers"),
    _features(
        "dates", lambda: np.zeros((V, F), "M8[s]"), "features holds dates or times (datetime64[s]): give numbers"
    ),
    _features(
        "a structured array",
        lambda: np.zeros(V, [("a", "f4"), ("b", "i4")]),
        "features is a structured array: give plain columns (numpy.lib.recfunctions.structured_to_unstructured)",
    ),
    _features(
        "a masked array with masked elements",
        lambda: np.ma.masked_less(X, 0),
        "features is a masked array with masked elements: fill them first (features.filled(…))",
    ),
    _features("one column `[V]`", lambda: X[:, 0], "features has shape [6]: one column is features[:, None], [V, 1]"),
    _features(
        "a row per feature `[F, V]`",
        lambda: X.T,
        "features has shape [4, 6], [F, V]: expected one row per vertex, features.T",
    ),
    _features("too few rows", lambda: X[:5], "features has length 5: expected 6, one row per vertex"),
    _features("three dimensions", lambda: X[..., None], "features must be real numbers [V, F], got float32 [6, 4, 1]"),
    _features("no columns", lambda: X[:, :0], "features has shape [6, 0]: expected at least one column, F ≥ 1"),
    _features(
        "rows of different lengths",
        lambda: [[1, 2], [3]] * 3,
        "features has rows of different lengths: give every row as many numbers",
    ),
    _features(
        "None",
        lambda: None,
        "features is None: if vertices have none, give what the model should start from, as np.ones((V, 1)) or degrees",
    ),
    _features("a dict", lambda: {"a": X}, "features is a dict: give an array or a list, one entry per row"),
    _features(
        "a generator",
        lambda: (row for row in X),
        "features is of type generator: give an array or a list, one entry per row",
    ),
]

LABELS = [
    _labels(
        "integers `[V]`, any type",
        lambda: Y.astype(np.uint64),
        note="converted to int32; num_classes is one more than the largest",
    ),
    _labels("a list", Y.tolist),
    _labels("a JAX array", lambda: jnp.asarray(Y)),
    _labels("a torch tensor", lambda: torch().tensor(Y)),
    _labels("a column `[V, 1]`", lambda: Y[:, None], note="read as `[V]`"),
    _labels(
        "-1 where a vertex is unlabelled",
        lambda: _with(Y, 1, -1),
        to=_with(Y, 1, -1),
        note="these vertices are in no mask",
    ),
    _labels("truth values", lambda: Y > 0, to=(Y > 0).astype(np.int32), classes=2, note="classes 0 and 1"),
    _labels("whole floating numbers, with `num_classes`", lambda: Y.astype(np.float64), num_classes=C, note="classes"),
    _labels(
        "a categorical pandas column",
        lambda: pd.Series(list("abcabc"), dtype="category"),
        note="its codes, -1 for missing values; text becomes `class_names`",
    ),
    _labels(
        "text, a list or array",
        lambda: list("abcabc"),
        note="classes in sorted order, kept as `class_names`; -1 for None, NaN and empty text",
    ),
    _labels(
        "text and `class_names`",
        lambda: np.array(list("acb") * 2, object),
        class_names=np.array(list("acb")),
        note="classes in the order of `class_names`",
    ),
    _labels(
        "None",
        lambda: None,
        to=np.full(V, np.nan, np.float32),
        classes=None,
        note="no labels, for prediction only",
    ),
    _labels(
        "None, with `num_classes`",
        lambda: None,
        to=np.full(V, -1, np.int32),
        num_classes=C,
        note="no labels, for prediction only",
    ),
    _labels("zeros and ones `[V, C]`", lambda: Z.astype(bool), to=Z, note="multi-label"),
    _labels("a SciPy sparse matrix of zeros and ones", lambda: scipy.sparse.csr_array(Z), to=Z, note="multi-label"),
    _labels(
        "floating numbers `[V]`, without `num_classes`",
        lambda: X[:, 0].astype(np.float64),
        to=X[:, 0],
        classes=None,
        note="targets; the default loss is the mean squared error",
    ),
    _labels(
        "floating numbers `[V, T]`, without `num_classes`",
        lambda: X,
        to=X,
        classes=None,
        note="targets; the default loss is the mean squared error",
    ),
    _labels(
        "zeros and ones, one 1 in each row, with `multilabel=True`",
        lambda: np.eye(C)[Y],
        to=np.eye(C, dtype=np.float32)[Y],
        multilabel=True,
        note="multi-label",
    ),
    _labels(
        "one-hot rows",
        lambda: np.eye(C)[Y],
        "labels [V, C] has exactly one 1 in every row: give classes, labels.argmax(axis=1), or say multilabel=True",
    ),
    _labels(
        "one-hot, with empty rows",
        lambda: _with(np.eye(C)[Y], 0, 0),
        "labels [V, C] has no row with more than one 1: give classes, "
        "np.where(labels.any(axis=1), labels.argmax(axis=1), -1), or say multilabel=True",
    ),
    _labels(
        "text and numbers",
        lambda: ["a", "b", 3, "a", "b", 3],
        "labels[2] = 3 stands among text: give every class as text",
    ),
    _labels(
        "text with NUL",
        lambda: ["a", "b\0", "c", "a", "b\0", "c"],
        "class_names[1] = 'b\\x00' contains NUL: rename it",
    ),
    _labels(
        "text `[V, C]`",
        lambda: np.array([list("ab")] * V),
        "labels holds text (<U1): number the classes 0 … C-1 (np.unique(labels, return_inverse=True)[1])",
    ),
    _labels(
        "text outside `class_names`",
        lambda: list("abcabc"),
        "labels[1] is the class 'b', which is not one of 'a', 'c'",
        class_names=["a", "c"],
    ),
    _labels(
        "another number of `class_names`",
        lambda: Y,
        "2 classes have names, num_classes = 3: give each class one name",
        class_names=["a", "c"],
        num_classes=C,
    ),
    _labels(
        "a categorical column of numbers",
        lambda: pd.Series([3, 5, 9] * 2, dtype="category"),
        "labels is categorical with the numbers 3, 5, 9: give its codes (labels.cat.codes) or its numbers "
        "(labels.astype(int64))",
    ),
    _labels(
        "another number where unlabelled",
        lambda: _with(Y, 2, -100),
        "labels[2] = -100 is negative: must be ≥ 0 and < num_classes = 3, or -1 where a vertex is unlabelled",
        num_classes=C,
    ),
    _labels(
        "a class too large",
        lambda: _with(Y, 4, C),
        "labels[4] = 3 is out of range: must be ≥ 0 and < num_classes = 3, or -1 where a vertex is unlabelled",
        num_classes=C,
    ),
    _labels(
        "all unlabelled",
        lambda: np.full(V, -1),
        "labels are -1 at every vertex, which means unlabelled: at least one class is needed to train",
    ),
    _labels(
        "an unlabelled vertex in a mask",
        lambda: _with(Y, 3, -1),
        "train_mask holds vertex 3, but labels[3] = -1 says that it is unlabelled (1 such vertices): "
        "train_mask & (labels >= 0)",
        train_mask=MASK,
    ),
    _labels(
        "fractions, with `num_classes`",
        lambda: Y + 0.5,
        "labels[0] = 0.5 is not a class, as num_classes = 3 says: leave num_classes out for targets",
        num_classes=C,
    ),
    _labels(
        "NaN, with `num_classes`",
        lambda: _with(Y.astype(float), 1, np.nan),
        "labels[1] = nan is not a class: give -1 where a vertex is unlabelled",
        num_classes=C,
    ),
    _labels(
        "NaN among targets",
        lambda: _with(X[:, 0], 1, np.nan),
        "labels[1] = nan is not finite: give any number and leave the vertex out of all masks (of classes: -1, and "
        "num_classes)",
    ),
    _labels("one row `[1, V]`", lambda: Y[None], "labels has length 1: expected 6, one per vertex"),
    _labels(
        "three dimensions",
        lambda: np.zeros((V, C, 1)),
        "labels must be integers [V], or zeros and ones [V, C], or floating targets [V] or [V, T], got shape [6, 3, 1]",
    ),
    _labels("None among numbers", lambda: [0, 1, None, 0, 1, 2], "labels[2] is None: give a number"),
    _labels("`num_classes` a fraction", lambda: Y, "num_classes must be one integer, got float64 3.0", num_classes=3.0),
    _labels("`num_classes` of a NumPy or JAX type", lambda: Y, num_classes=np.int64(C)),
    _labels(
        "columns that are not `num_classes`",
        lambda: Z,
        "labels [V, C] has 3 columns: expected one per class, num_classes = 5",
        num_classes=5,
    ),
]

MASKS = [
    Kind(
        "no mask",
        dict,
        None,
        {"train_mask": np.ones(V, bool), "val_mask": np.zeros(V, bool)},
        "all labelled vertices train",
    ),
    _mask("bool `[V]`", lambda: MASK),
    _mask("a list of truth values", MASK.tolist),
    _mask("a JAX array", lambda: jnp.asarray(MASK)),
    _mask("a torch tensor, bool or byte", lambda: torch().tensor(MASK).byte()),
    _mask("a pandas column", lambda: pd.Series(MASK, dtype="boolean")),
    _mask("V integers, each 0 or 1", lambda: MASK.astype(np.int64), note="a mask"),
    _mask("distinct vertex numbers, in any order", lambda: [3, 0], note="these vertices"),
    _mask("a column `[V, 1]`", lambda: MASK[:, None]),
    _mask(
        "several splits `[V, K]`",
        lambda: np.stack([MASK] * 10, axis=1),
        "train_mask has shape [6, 10], one column per split: choose one, as train_mask[:, 0]",
    ),
    _mask(
        "zeros and ones of a floating type",
        lambda: MASK.astype(float),
        "train_mask must be bool [V] or vertex numbers, got float64 [6]: train_mask.astype(bool) if it is zeros and ones",
    ),
    _mask(
        "vertex numbers that repeat",
        lambda: [0, 3, 0],
        "train_mask is neither a mask (6 zeros and ones) nor a list of vertices: train_mask[2] = 0 is repeated, give each "
        "vertex once",
    ),
    _mask(
        "an unknown vertex",
        lambda: [0, 6],
        "train_mask is neither a mask (6 zeros and ones) nor a list of vertices: train_mask[1] = 6 is not in 0 … 5",
    ),
    _mask("too short", lambda: MASK[:5], "train_mask has length 5: expected 6, one per vertex"),
    _mask("a slice", lambda: slice(0, 3), "train_mask is of type slice: give an array or a list, one entry per row"),
    _mask("a set", lambda: {0, 3}, "train_mask is a set: give an array or a list, one entry per row"),
    _mask("text", lambda: "train", "train_mask holds text (<U5): give numbers"),
    _mask("no vertex", lambda: [], "train_mask holds no vertex: at least one is needed to train"),
    Kind(
        "masks that overlap",
        lambda: {"train_mask": MASK, "val_mask": [3, 4]},
        "train_mask and val_mask overlap: train_mask[3] = val_mask[3] = True (1 such vertices)",
    ),
    Kind(
        "no training mask beside others",
        lambda: {"val_mask": [1], "test_mask": [2]},
        "train_mask is not given beside val_mask and test_mask: give it too, for example ~(val_mask | test_mask)",
    ),
    Kind(
        "0 and 1 on a graph of two vertices",
        lambda: {"train_mask": [1, 0], "num_vertices": 2},
        "train_mask = [1, 0] may be a mask or a list of vertices: give truth values",
    ),
]

INPUTS = [
    _input("numbers `[V]` or `[V, …]`, floating", lambda: X.astype(np.float64), to=X, note="converted to float32"),
    _input("integers", lambda: np.arange(V), to=np.arange(V, dtype=np.int32), note="converted to int32"),
    _input("truth values", lambda: torch().tensor(MASK), to=MASK),
    Kind(
        "values of edges `[E, …]`",
        lambda: {"edge_inputs": {"edge_weight": jnp.arange(6.0)}},
        None,
        {"edge_inputs": {"edge_weight": np.arange(6, dtype=np.float32)}},
        "in the order in which the edges were given",
    ),
    _input(
        "integers that int32 does not hold",
        lambda: np.full(V, 2**40),
        "vertex_inputs['pos'] holds 1099511627776, which int32 does not: renumber, or give floating numbers",
    ),
    _input(
        "NaN", lambda: _with(X, (0, 2), np.nan), "vertex_inputs['pos'][0, 2] = nan is not finite: replace or drop it"
    ),
    _input("too short", lambda: X[:3], "vertex_inputs['pos'] has length 3: expected 6, one row per vertex"),
    _input("text", lambda: list("abcdef"), "vertex_inputs['pos'] holds text (<U1): give numbers"),
    _input(
        "one number",
        lambda: 3,
        "vertex_inputs['pos'] is a single value, array(3): expected an array of length 6, one row per vertex",
    ),
    _input(
        "empty rows", lambda: X[:, :0], "vertex_inputs['pos'] has shape [6, 0]: expected at least one number per row"
    ),
    Kind(
        "values of edges, too many",
        lambda: {"edge_inputs": {"w": np.ones(7)}},
        "edge_inputs['w'] has length 7: expected 6, one row per edge",
    ),
    Kind(
        "a name that is no identifier",
        lambda: {"vertex_inputs": {"edge weight": Y}},
        "vertex_inputs has the name 'edge weight', which no keyword argument can have: rename it, as edge_weight",
    ),
    Kind(
        "a taken name",
        lambda: {"vertex_inputs": {"train": Y}},
        "vertex_inputs has the name 'train', which models are called with already: rename it",
    ),
    Kind(
        "a name of vertices and of edges",
        lambda: {"vertex_inputs": {"w": Y}, "edge_inputs": {"w": Y}},
        "'w' is in vertex_inputs and in edge_inputs: rename one, a model takes it by name",
    ),
    Kind(
        "no names",
        lambda: {"vertex_inputs": [X]},
        "vertex_inputs must map names to arrays, as {'pos': positions}, got list",
    ),
]


class Command(NamedTuple):
    """What `dorylax train` is given.

    Attributes:
        what: in words.
        write: puts files into a folder; without it words are enough.
        line: what is printed where it is refused, without the folder.
        words: after `dorylax train`.
        note: what the page says besides that it works.
    """

    what: str
    write: Callable[[Path], object] | None
    line: str | None = None
    words: tuple[str, ...] = ("--data", "mine.npz")
    note: str = ""


def _archive(
    what: str, line: str | None = None, *drop: str, note: str = "", words: tuple[str, ...] = (), **arrays: Any
) -> Command:
    def write(folder: Path) -> None:
        usual = {
            "indptr": np.arange(V + 1),
            "indices": np.roll(np.arange(V, dtype=np.int32), -1),
            "features": X,
            "labels": Y,
        }
        kept = {name: array for name, array in {**usual, **arrays}.items() if name not in drop}
        np.savez(folder / "mine.npz", **kept)

    return Command(what, write, line and f"mine.npz: {line}", ("--data", "mine.npz", *words), note)


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "mine.npz").write_bytes(content)


def _one_array(folder: Path) -> None:
    with (folder / "mine.npz").open("wb") as file:
        np.save(file, X)


def _cut(folder: Path) -> None:
    np.savez(folder / "mine.npz", features=X)
    content = (folder / "mine.npz").read_bytes()
    (folder / "mine.npz").write_bytes(content[: len(content) // 2])


_ROWS = scipy.sparse.csr_array(X)
_SPARSE = {
    "features_indptr": _ROWS.indptr,
    "features_indices": _ROWS.indices,
    "features_data": _ROWS.data,
    "features_shape": np.array(_ROWS.shape),
}
COMMANDS = [
    _archive("`indptr`, `indices`, `features`, `labels`", note="split 60/20/20 % within each class"),
    _archive("compressed features", None, "features", **_SPARSE),
    _archive("features big-endian, in Fortran order", features=np.asfortranarray(X.astype(">f8"))),
    _archive("features of integers or truth values", features=X > 0),
    _archive("labels `[V, 1]`", labels=Y[:, None]),
    _archive(
        "labels -1 where unlabelled", labels=np.where(np.arange(V) == 1, -1, Y), note="only labelled vertices are split"
    ),
    _archive("whole floating labels and `num_classes`", labels=Y.astype(float), num_classes=C),
    _archive(
        "floating labels, without `num_classes`",
        labels=X[:, 0],
        note="targets; the default loss is the mean squared error",
    ),
    _archive("multi-label", labels=Z),
    _archive("masks of integers, or vertex numbers", train_mask=np.array([0, 3]), val_mask=MASK[::-1].astype(int)),
    _archive("a training mask alone", train_mask=MASK, note="the others are empty"),
    _archive("a further input `vertex_pos`", vertex_pos=np.ones((V, 3)), note="passed to models that take `pos`"),
    Command(
        "an empty file",
        _bytes(b""),
        "mine.npz: not an npz archive (it is another kind of file, or cut off): np.savez writes one",
    ),
    Command(
        "a text file",
        _bytes(b"a,b\n"),
        "mine.npz: not an npz archive (it is another kind of file, or cut off): np.savez writes one",
    ),
    Command(
        "half a file",
        _cut,
        "mine.npz: not an npz archive (it is another kind of file, or cut off): np.savez writes one",
    ),
    Command(
        "a file of np.save", _one_array, "mine.npz: not an npz archive but one array, as np.save writes: use np.savez"
    ),
    Command(
        "a folder",
        lambda folder: (folder / "mine.npz").mkdir(),
        "mine.npz is a folder without manifest.json: give one that dorylax wrote (Dataset.save, dorylax import)",
    ),
    Command(
        "a file of another format",
        lambda folder: (folder / "mine.csv").write_text("a,b\n"),
        "mine.csv is no data set: Dataset.save and dorylax import write folders with a manifest.json",
        ("--data", "mine.csv"),
    ),
    Command(
        "an empty archive",
        lambda folder: np.savez(folder / "mine.npz"),
        "mine.npz: has no array indptr and no indices and no features; it has none",
    ),
    _archive(
        "no labels",
        "has no array labels; it has indptr, indices, features. Without features and labels it is only a graph: "
        "Graph.from_folder reads it",
        "labels",
    ),
    _archive(
        "one of several splits",
        words=("--set", "data.split=1"),
        train_mask=np.stack([~MASK, MASK]),
        val_mask=np.stack([MASK, ~MASK], axis=1),
        note="masks `[V, K]` or `[K, V]`, with `data.split`",
    ),
    _archive(
        "another split than the only one",
        "split = 1, but the masks hold one split: leave split (data.split) out",
        words=("--set", "data.split=1"),
        train_mask=MASK,
    ),
    _archive("names of classes", class_names=np.array(["a", "b", "c"]), note="`predict` writes them"),
    _archive(
        "too few names of classes",
        "2 classes have names, num_classes = 3: give each class one name",
        class_names=np.array([b"a", b"b"]),
        num_classes=3,
    ),
    _archive(
        "a name with a control character",
        "the data set's name 'a\\x1b[31m' has a control character: rename it",
        name="a\x1b[31m",
    ),
    _archive("no features", "has no array features; it has indptr, indices, labels", "features"),
    _archive("no edges", "has no array indices; it has indptr, features, labels", "indices"),
    _archive(
        "a misspelt name",
        "has an array trainmask, which is not read: name it train_mask, or leave it out",
        trainmask=MASK,
    ),
    _archive("features twice", "has features and, in compressed rows, features_data: leave out one of them", **_SPARSE),
    _archive(
        "a part of compressed features",
        "has no array features_data and no features_shape; it has indptr, indices, labels, "
        "features_indptr, features_indices",
        "features",
        "features_data",
        "features_shape",
        **_SPARSE,
    ),
    _archive(
        "compressed features of another size",
        "features_indptr has length 7: expected 6, one more than features_shape[0]",
        "features",
        **{**_SPARSE, "features_shape": np.array([5, 4])},
    ),
    _archive("offsets `[V, 2]`", "indptr must be one-dimensional, got shape (2, 2)", indptr=np.zeros((2, 2), int)),
    _archive(
        "`edge_index` as `indices`", "indices must be one-dimensional, got shape (2, 6)", indices=np.zeros((2, 6), int)
    ),
    _archive("floating vertices", "indices must hold integers, got float64", indices=np.zeros(V)),
    _archive(
        "an unknown vertex",
        "indices[0] = 9 is out of range: must be ≥ 0 and < num_vertices = 6",
        indices=np.full(V, 9),
    ),
    _archive(
        "Python objects",
        "array labels cannot be read (it holds Python objects: save numbers)",
        labels=np.array([None] * V),
    ),
    _archive("features `[V]`", "features has shape [6]: one column is features[:, None], [V, 1]", features=X[:, 0]),
    _archive("no columns", "features has shape [6, 0]: expected at least one column, F ≥ 1", features=X[:, :0]),
    _archive("a NaN", "features[0, 0] = nan is not finite: replace or drop it", features=X * np.nan),
    _archive("too few features", "features has length 5: expected 6, one row per vertex", features=X[:5]),
    _archive("labels of text", labels=np.array(list("abcabc")), note="names of classes"),
    _archive(
        "one-hot labels",
        "labels [V, C] has exactly one 1 in every row: give classes, labels.argmax(axis=1), or say multilabel=True",
        labels=np.eye(C)[Y],
    ),
    _archive("one-hot labels and `multilabel`", labels=np.eye(C)[Y], multilabel=True),
    _archive("too few labels", "labels has length 5: expected 6, one per vertex", labels=Y[:5]),
    _archive("`num_classes` of text", "num_classes must be one integer, got <U5 'three'", num_classes="three"),
    _archive("`num_classes` 0", "num_classes must be ≥ 1 and ≤ 2147483647 (labels are int32), got 0", num_classes=0),
    _archive(
        "masks `[V, K]`",
        "train_mask holds 10 splits: choose one, split (data.split) = 0 … 9",
        train_mask=np.ones((V, 10), bool),
    ),
    _archive("masks too short", "train_mask has length 5: expected 6, one per vertex", train_mask=MASK[:5]),
    _archive(
        "a validation mask alone",
        "train_mask is not given beside val_mask: give it too, for example ~val_mask",
        val_mask=MASK,
    ),
    _archive(
        "`directed` false of a directed graph",
        "directed is false, but there are edges without their reverse",
        directed=False,
    ),
    _archive("several names", "array name must be a single value, got <U1 [2]", name=np.array(["a", "b"])),
    _archive(
        "a further input with a taken name",
        "vertex_inputs has the name 'x', which models are called with already: rename it",
        vertex_x=np.ones(V),
    ),
    Command(
        "a validation metric without validation vertices",
        lambda folder: _archive("", train_mask=MASK).write(folder),
        "train.patience needs validation vertices, and mine has an empty val_mask",
        ("--data", "mine.npz", "--set", "train.patience=3"),
    ),
    Command(
        "a size of data that have one",
        lambda folder: _archive("").write(folder),
        "mine.npz takes no option 'size': only 'communities' is generated",
        ("--data", "mine.npz", "--set", "data.size=tiny"),
    ),
    Command(
        "a seed < 0", None, "data.split_seed must be ≥ 0 and < 2147483648, got -1", ("--set", "data.split_seed=-1")
    ),
    Command(
        "neither true nor false",
        None,
        "data.row_normalise must be true or false, got 'maybe'",
        ("--set", "data.row_normalise=maybe"),
    ),
    Command(
        "an unknown key",
        None,
        "unknown key 'data.mask': choose from data.name, data.size, data.row_normalise, data.split_seed, data.split, "
        "data.verify",
        ("--set", "data.mask=x"),
    ),
]

GROUPS = {"Features": FEATURES, "Labels": LABELS, "Masks": MASKS, "Further inputs": INPUTS}


def page() -> str:
    """docs/inputs.md."""
    parts = [_HEAD]
    for title, rows in (*GROUPS.items(), ("On the command line", COMMANDS)):
        taken = [row for row in rows if row.line is None]
        plain = "; ".join(row.what for row in taken if not row.note)
        refused = "; ".join(row.what for row in rows if row.line is not None)
        table = "\n".join(f"| {_cell(row.what)} | {_cell(row.note)} |" for row in taken if row.note)
        parts.append(
            f"## {title}\n\n{_INTRODUCTIONS[title]}\n| accepted | note |\n|---|---|\n{table}\n\n"
            f"**Also accepted:** {plain}.\n\n**Refused:** {refused}.\n"
        )
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_HEAD = """# Accepted data

The forms of features, labels, masks and further inputs that `dorylax.Dataset` and `dorylax train` accept or refuse.

```python
import dorylax
import numpy as np
from dorylax.graph import Graph

graph = Graph.from_coo(np.array([0, 1, 2]), np.array([1, 2, 0]), 3)
data = dorylax.Dataset("mine", graph, np.eye(3), ["red", "blue", "red"], train_mask=[0, 2])
print(data.features.dtype, data.labels, data.class_names, data.train_mask)
```

Here features become float32, the two texts become the classes 0 and 1, and the vertex numbers become a mask. dorylax
does not guess: ambiguous input raises `GraphError`, and the message names the value, the expected form and the remedy:

```text
features has shape [4, 6], [F, V]: expected one row per vertex, features.T
```

[Data](data.md) shows how to build, import and store graphs. `python tests/test_inputs.py` generates this page.
"""
_INTRODUCTIONS = {
    "Features": """`features`, stored as float32 `[V, F]`.
""",
    "Labels": """`labels`, with `num_classes` where noted. Stored as int32 `[V]` (classes, -1 for
unlabelled vertices), as float32 `[V, C]` (zeros and ones, multi-label), or as float32 `[V]`
or `[V, T]` (targets; `num_classes` is then None).
""",
    "Masks": """`train_mask`, `val_mask` and `test_mask`, stored as bool `[V]`.
""",
    "Further inputs": """`vertex_inputs` and `edge_inputs`, stored as bool, int32 or float32.
The model receives them as keyword arguments.
""",
    "On the command line": """`dorylax train --data mine` with a data set's folder
([layout](data-files.md#layout-of-a-folder)), and `--set data.…`.
A refusal prints `error: ` and the message, with exit code 2.
""",
}
