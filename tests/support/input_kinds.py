"""What users give as data: one table of kinds, each with what becomes of it where it is not refused.

`tests/test_inputs.py` tries every row. The lines that refuse some are in tests/golden/snapshots/inputs.txt, and
docs/inputs.md is written from both.
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
        becomes: attribute → value where it works.
        note: what the page says besides that it works.
    """

    what: str
    given: Callable[[], dict[str, Any]]
    becomes: dict[str, Any] = {}  # noqa: RUF012
    note: str = ""


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: it comes with the bench extra")


def _features(what: str, make: Callable[[], Any], note: str = "") -> Kind:
    return Kind(what, lambda: {"features": make()}, {"features": X}, note)


def _labels(what: str, make: Callable[[], Any], *, to: Any = Y, classes: Any = C, note: str = "", **given: Any) -> Kind:
    return Kind(what, lambda: {"labels": make(), **given}, {"labels": to, "num_classes": classes}, note)


def _mask(what: str, make: Callable[[], Any], *, to: Any = MASK, note: str = "") -> Kind:
    return Kind(what, lambda: {"train_mask": make()}, {"train_mask": to}, note)


def _input(what: str, make: Callable[[], Any], *, to: Any = None, note: str = "") -> Kind:
    return Kind(what, lambda: {"vertex_inputs": {"pos": make()}}, {"vertex_inputs": {"pos": to}}, note)


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
    _features("a DataFrame with columns of text", _text_table),
    _features(
        "a DataFrame with missing values (NA)",
        lambda: pd.DataFrame({"age": pd.array([1, None, 3, 4, 5, 6], dtype="Int64")}),
    ),
    _features("a DataFrame with reordered index", lambda: pd.DataFrame(X, index=range(V)[::-1])),
    _features("sparse and too large to be made dense", lambda: scipy.sparse.csr_array((V, 10**13), dtype=np.float32)),
    _features("NaN", lambda: _with(X, (2, 3), np.nan)),
    _features("infinity", lambda: _with(X, (5, 0), -np.inf)),
    _features("a number too large for float32", lambda: _with(X.astype(np.float64), (1, 1), 1e300)),
    _features("complex numbers", lambda: X * 1j),
    _features("an object array of numbers", lambda: X.astype(object)),
    _features("an object array with None", lambda: _with(X.astype(object), (0, 1), None)),
    _features("text", lambda: X.astype("U5")),
    _features("dates", lambda: np.zeros((V, F), "M8[s]")),
    _features("a structured array", lambda: np.zeros(V, [("a", "f4"), ("b", "i4")])),
    _features("a masked array with masked elements", lambda: np.ma.masked_less(X, 0)),
    _features("one column `[V]`", lambda: X[:, 0]),
    _features("a row per feature `[F, V]`", lambda: X.T),
    _features("too few rows", lambda: X[:5]),
    _features("three dimensions", lambda: X[..., None]),
    _features("no columns", lambda: X[:, :0]),
    _features("rows of different lengths", lambda: [[1, 2], [3]] * 3),
    _features("None", lambda: None),
    _features("a dict", lambda: {"a": X}),
    _features("a generator", lambda: (row for row in X)),
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
        "None", lambda: None, to=np.full(V, np.nan, np.float32), classes=None, note="no labels, for prediction only"
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
    _labels("one-hot rows", lambda: np.eye(C)[Y]),
    _labels("one-hot, with empty rows", lambda: _with(np.eye(C)[Y], 0, 0)),
    _labels("text and numbers", lambda: ["a", "b", 3, "a", "b", 3]),
    _labels("text with NUL", lambda: ["a", "b\0", "c", "a", "b\0", "c"]),
    _labels("text `[V, C]`", lambda: np.array([list("ab")] * V)),
    _labels("text outside `class_names`", lambda: list("abcabc"), class_names=["a", "c"]),
    _labels("another number of `class_names`", lambda: Y, class_names=["a", "c"], num_classes=C),
    _labels("a categorical column of numbers", lambda: pd.Series([3, 5, 9] * 2, dtype="category")),
    _labels("another number where unlabelled", lambda: _with(Y, 2, -100), num_classes=C),
    _labels("a class too large", lambda: _with(Y, 4, C), num_classes=C),
    _labels("all unlabelled", lambda: np.full(V, -1)),
    _labels("an unlabelled vertex in a mask", lambda: _with(Y, 3, -1), train_mask=MASK),
    _labels("fractions, with `num_classes`", lambda: Y + 0.5, num_classes=C),
    _labels("NaN, with `num_classes`", lambda: _with(Y.astype(float), 1, np.nan), num_classes=C),
    _labels("NaN among targets", lambda: _with(X[:, 0], 1, np.nan)),
    _labels("one row `[1, V]`", lambda: Y[None]),
    _labels("three dimensions", lambda: np.zeros((V, C, 1))),
    _labels("None among numbers", lambda: [0, 1, None, 0, 1, 2]),
    _labels("`num_classes` a fraction", lambda: Y, num_classes=3.0),
    _labels("`num_classes` of a NumPy or JAX type", lambda: Y, num_classes=np.int64(C)),
    _labels("columns that are not `num_classes`", lambda: Z, num_classes=5),
]

MASKS = [
    Kind(
        "no mask", dict, {"train_mask": np.ones(V, bool), "val_mask": np.zeros(V, bool)}, "all labelled vertices train"
    ),
    _mask("bool `[V]`", lambda: MASK),
    _mask("a list of truth values", MASK.tolist),
    _mask("a JAX array", lambda: jnp.asarray(MASK)),
    _mask("a torch tensor, bool or byte", lambda: torch().tensor(MASK).byte()),
    _mask("a pandas column", lambda: pd.Series(MASK, dtype="boolean")),
    _mask("V integers, each 0 or 1", lambda: MASK.astype(np.int64), note="a mask"),
    _mask("distinct vertex numbers, in any order", lambda: [3, 0], note="these vertices"),
    _mask("a column `[V, 1]`", lambda: MASK[:, None]),
    _mask("several splits `[V, K]`", lambda: np.stack([MASK] * 10, axis=1)),
    _mask("zeros and ones of a floating type", lambda: MASK.astype(float)),
    _mask("vertex numbers that repeat", lambda: [0, 3, 0]),
    _mask("an unknown vertex", lambda: [0, 6]),
    _mask("too short", lambda: MASK[:5]),
    _mask("a slice", lambda: slice(0, 3)),
    _mask("a set", lambda: {0, 3}),
    _mask("text", lambda: "train"),
    _mask("no vertex", lambda: []),
    Kind("masks that overlap", lambda: {"train_mask": MASK, "val_mask": [3, 4]}),
    Kind("no training mask beside others", lambda: {"val_mask": [1], "test_mask": [2]}),
    Kind("0 and 1 on a graph of two vertices", lambda: {"train_mask": [1, 0], "num_vertices": 2}),
]

INPUTS = [
    _input("numbers `[V]` or `[V, …]`, floating", lambda: X.astype(np.float64), to=X, note="converted to float32"),
    _input("integers", lambda: np.arange(V), to=np.arange(V, dtype=np.int32), note="converted to int32"),
    _input("truth values", lambda: torch().tensor(MASK), to=MASK),
    Kind(
        "values of edges `[E, …]`",
        lambda: {"edge_inputs": {"edge_weight": jnp.arange(6.0)}},
        {"edge_inputs": {"edge_weight": np.arange(6, dtype=np.float32)}},
        "in the order in which the edges were given",
    ),
    _input("integers that int32 does not hold", lambda: np.full(V, 2**40)),
    _input("NaN", lambda: _with(X, (0, 2), np.nan)),
    _input("too short", lambda: X[:3]),
    _input("text", lambda: list("abcdef")),
    _input("one number", lambda: 3),
    _input("empty rows", lambda: X[:, :0]),
    Kind("values of edges, too many", lambda: {"edge_inputs": {"w": np.ones(7)}}),
    Kind("a name that is no identifier", lambda: {"vertex_inputs": {"edge weight": Y}}),
    Kind("a taken name", lambda: {"vertex_inputs": {"train": Y}}),
    Kind("a name of vertices and of edges", lambda: {"vertex_inputs": {"w": Y}, "edge_inputs": {"w": Y}}),
    Kind("no names", lambda: {"vertex_inputs": [X]}),
]


class Command(NamedTuple):
    """What `dorylax train` is given.

    Attributes:
        what: in words.
        write: puts files into a folder; without it words are enough.
        words: after `dorylax train`.
        note: what the page says besides that it works.
    """

    what: str
    write: Callable[[Path], object] | None
    words: tuple[str, ...] = ("--data", "mine.npz")
    note: str = ""


def _archive(what: str, *drop: str, note: str = "", words: tuple[str, ...] = (), **arrays: Any) -> Command:
    def write(folder: Path) -> None:
        usual = {
            "indptr": np.arange(V + 1),
            "indices": np.roll(np.arange(V, dtype=np.int32), -1),
            "features": X,
            "labels": Y,
        }
        kept = {name: array for name, array in {**usual, **arrays}.items() if name not in drop}
        np.savez(folder / "mine.npz", **kept)

    return Command(what, write, ("--data", "mine.npz", *words), note)


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
    _archive("compressed features", "features", **_SPARSE),
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
    Command("an empty file", _bytes(b"")),
    Command("a text file", _bytes(b"a,b\n")),
    Command("half a file", _cut),
    Command("a file of np.save", _one_array),
    Command("a folder", lambda folder: (folder / "mine.npz").mkdir()),
    Command(
        "a file of another format", lambda folder: (folder / "mine.csv").write_text("a,b\n"), ("--data", "mine.csv")
    ),
    Command("an empty archive", lambda folder: np.savez(folder / "mine.npz")),
    _archive("no labels", "labels"),
    _archive(
        "one of several splits",
        words=("--set", "data.split=1"),
        train_mask=np.stack([~MASK, MASK]),
        val_mask=np.stack([MASK, ~MASK], axis=1),
        note="masks `[V, K]` or `[K, V]`, with `data.split`",
    ),
    _archive("another split than the only one", words=("--set", "data.split=1"), train_mask=MASK),
    _archive("names of classes", class_names=np.array(["a", "b", "c"]), note="`predict` writes them"),
    _archive("too few names of classes", class_names=np.array([b"a", b"b"]), num_classes=3),
    _archive("a name with a control character", name="a\x1b[31m"),
    _archive("no features", "features"),
    _archive("no edges", "indices"),
    _archive("a misspelt name", trainmask=MASK),
    _archive("features twice", **_SPARSE),
    _archive("a part of compressed features", "features", "features_data", "features_shape", **_SPARSE),
    _archive("compressed features of another size", "features", **{**_SPARSE, "features_shape": np.array([5, 4])}),
    _archive("offsets `[V, 2]`", indptr=np.zeros((2, 2), int)),
    _archive("`edge_index` as `indices`", indices=np.zeros((2, 6), int)),
    _archive("floating vertices", indices=np.zeros(V)),
    _archive("an unknown vertex", indices=np.full(V, 9)),
    _archive("Python objects", labels=np.array([None] * V)),
    _archive("features `[V]`", features=X[:, 0]),
    _archive("no columns", features=X[:, :0]),
    _archive("a NaN", features=X * np.nan),
    _archive("too few features", features=X[:5]),
    _archive("labels of text", labels=np.array(list("abcabc")), note="names of classes"),
    _archive("one-hot labels", labels=np.eye(C)[Y]),
    _archive("one-hot labels and `multilabel`", labels=np.eye(C)[Y], multilabel=True),
    _archive("too few labels", labels=Y[:5]),
    _archive("`num_classes` of text", num_classes="three"),
    _archive("`num_classes` 0", num_classes=0),
    _archive("masks `[V, K]`", train_mask=np.ones((V, 10), bool)),
    _archive("masks too short", train_mask=MASK[:5]),
    _archive("a validation mask alone", val_mask=MASK),
    _archive("`directed` false of a directed graph", directed=False),
    _archive("several names", name=np.array(["a", "b"])),
    _archive("a further input with a taken name", vertex_x=np.ones(V)),
    Command(
        "a validation metric without validation vertices",
        lambda folder: _archive("", train_mask=MASK).write(folder),
        ("--data", "mine.npz", "--set", "train.patience=3"),
    ),
    Command(
        "a size of data that have one",
        lambda folder: _archive("").write(folder),
        ("--data", "mine.npz", "--set", "data.size=tiny"),
    ),
    Command("a seed < 0", None, ("--set", "data.split_seed=-1")),
    Command("neither true nor false", None, ("--set", "data.row_normalise=maybe")),
    Command("an unknown key", None, ("--set", "data.mask=x")),
]

COMMAND_LINE = "On the command line"
GROUPS = {"Features": FEATURES, "Labels": LABELS, "Masks": MASKS, "Further inputs": INPUTS}


RECORDED = Path(__file__).parents[1] / "golden" / "snapshots" / "inputs.txt"


def refusals() -> dict[str, str]:
    """By group and kind the line that refuses it."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return {name: line.strip() for name, line in zip(lines[::2], lines[1::2], strict=True)}


def page() -> str:
    """docs/inputs.md."""
    parts, lines = [_HEAD], refusals()
    for title, rows in (*GROUPS.items(), (COMMAND_LINE, COMMANDS)):
        taken = [row for row in rows if f"{title}: {row.what}" not in lines]
        plain = "; ".join(row.what for row in taken if not row.note)
        refused = "; ".join(row.what for row in rows if row not in taken)
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
