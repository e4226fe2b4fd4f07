"""An import is what the in-memory builder and `save` give, array for array."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from support.stored import contents

from dorylax.graph.dataset import Dataset
from dorylax.graph.from_files import import_graph as module
from dorylax.graph.from_files import sources as files
from dorylax.graph.from_files.import_graph import import_graph
from dorylax.graph.from_files.text import Wanted
from dorylax.graph.from_files.vertices import VertexFiles
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError

MEMORY = 1 << 30
COLUMNS = ("source", "target", "w", "k")
WEIGHTED = Wanted(columns=COLUMNS[:3])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _same(path, expected):
    found = contents(path)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name


def _in_memory(folder, sources, targets, num_vertices=None, values=None, *, symmetrise=False, **options):
    graph = Graph.from_coo(
        np.asarray(sources, np.int64), np.asarray(targets, np.int64), num_vertices, edge_data=values, **options
    )
    (graph.symmetrise() if symmetrise else graph).save(folder / "expected")
    return contents(folder / "expected")


def _import(folder, sources, **options):
    options.setdefault("memory", MEMORY)
    return import_graph(sources, folder / "out", **options)


def _text(path, columns, separator=" ", junk=False):
    rows = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    if junk:
        rows = [part for row in rows for part in (row, "# comment", "")]
    content = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _write(folder, number, kind, columns):
    """Some edges as a file of one format."""
    if kind == "blanks":
        return _text(folder / f"{number}.txt", columns, "  \t", junk=True)
    if kind == "text":
        return _text(folder / f"{number}.txt", columns)
    if kind == "csv":
        return _text(folder / f"{number}.csv", columns, ",")
    if kind == "gz":
        return _text(folder / f"{number}.tsv.gz", columns, "\t")
    types = dict(zip(COLUMNS, (np.int64, np.int64, np.float32, np.int64), strict=True))
    arrays = {name: np.asarray(values, types[name]) for name, values in zip(COLUMNS, columns, strict=False)}
    if kind in ("npz", "packed"):
        path = folder / f"{number}.npz"
        (np.savez_compressed if kind == "packed" else np.savez)(path, **arrays)
        return path
    form = {"zst": "csv, header false, compression zstd", "jsonl": "json", "parquet": "parquet"}[kind]
    path = folder / f"{number}.{'csv.zst' if kind == 'zst' else kind}"
    with duckdb.connect() as database:
        database.register("arrays", arrays)
        database.execute(f"COPY (SELECT * FROM arrays) TO '{path}' (FORMAT {form})")
    return path


KINDS = ("blanks", "text", "csv", "gz", "npz", "packed", "zst", "jsonl", "parquet")


@pytest.mark.parametrize("seed", range(12))
def test_an_archive_is_what_is_built_in_memory(tmp_path, seed):
    """All kinds of files and options, a combination for each seed."""
    rng = random.Random(seed)
    kinds = [KINDS[(2 * seed + k) % len(KINDS)] for k in range(1 + seed % 3)]
    with_values, symmetrise = bool(seed & 1), bool(seed & 2)
    coalesce = (False, "first", "sum" if with_values else "first")[seed % 3]
    edge_ids = with_values or seed % 5 > 0
    num_vertices = 9
    pairs = [(rng.randrange(num_vertices), rng.randrange(num_vertices)) for _ in range(120)]
    pairs = sorted(pairs) if seed % 4 == 0 else pairs
    rows = [
        (*pair, *((rng.choice([0.5, 0.1, -3.25, 1e9]), rng.randrange(-5, 5)) if with_values else ())) for pair in pairs
    ]
    cuts = [120 * k // len(kinds) for k in range(len(kinds) + 1)]
    sources = [
        _write(tmp_path, number, kind, list(zip(*rows[first:end], strict=True)))
        for number, (kind, first, end) in enumerate(zip(kinds, cuts, cuts[1:], strict=False))
    ]
    names = COLUMNS if with_values else COLUMNS[:2]
    wanted = Wanted(
        columns=names,
        source="source",
        target="target",
        values={"w": np.dtype(np.float32), "k": np.dtype(np.int64)} if with_values else {},
    )
    options = {"symmetrise": symmetrise, "coalesce": coalesce, "edge_ids": edge_ids}
    imported = _import(tmp_path, sources, wanted=wanted, num_vertices=num_vertices, **options)
    columns = list(zip(*rows, strict=True))
    values = {"w": np.array(columns[2], np.float32), "k": np.array(columns[3], np.int64)} if with_values else None
    expected = _in_memory(tmp_path, *columns[:2], num_vertices, values, **options)
    _same(tmp_path / "out", expected)
    assert (imported.num_edges, imported.edges_read) == (len(expected["indices"]), len(pairs))
    assert imported.symmetric == (not expected["directed"])
    assert not list(tmp_path.glob(".out.dorylax-*"))


def _graph(seed=0, num_edges=300, num_vertices=20):
    return np.random.default_rng(seed).integers(0, num_vertices, (2, num_edges))


@pytest.mark.parametrize("ids", ["numbers", "integers", "names"])
def test_the_archive_does_not_depend_on_threads(tmp_path, ids):
    """More rows than one of DuckDB's row groups (122,880), equal edges, and floating sums whose order shows."""
    edges = _graph(num_edges=150_000, num_vertices=2_000)
    weights = np.random.default_rng(1).standard_normal(150_000).astype(np.float32)
    np.savez(tmp_path / "e.npz", sources=edges[0], targets=edges[1], w=weights)
    with duckdb.connect() as database:
        database.register("arrays", {"s": edges[0], "t": edges[1], "w": weights})
        database.execute(f"COPY (SELECT * FROM arrays) TO '{tmp_path / 'e.csv'}' (FORMAT csv)")
    wanted = Wanted(ids=ids, header=True, values={"w": None})
    options = {"symmetrise": True, "coalesce": "sum", "wanted": wanted}
    whole = None
    for threads in (1, 2, 8):
        _import(tmp_path, [tmp_path / "e.csv"], threads=threads, **options)
        content = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert whole is None or content == whole, threads
        whole = content
    if ids == "names":
        order = list(dict.fromkeys(edges.T.reshape(-1).tolist()))
        edges = np.argsort(order)[np.searchsorted(np.sort(order), edges)]
    expected = _in_memory(tmp_path, *edges, None, {"w": weights}, coalesce="sum", symmetrise=True)
    found = contents(tmp_path / "out")
    found.pop("original_ids", None)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_files_may_have_their_values_in_different_orders(tmp_path):
    (tmp_path / "a.csv").write_text("source,target,w,k\n0,1,1.5,7\n")
    (tmp_path / "b.csv").write_text("k,source,target,w\n8,1,2,2.5\n")
    _import(tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"], wanted=Wanted(source="source", target="target"))
    found = contents(tmp_path / "out")
    assert (found["edge_w"].tolist(), found["edge_k"].tolist()) == ([1.5, 2.5], [7, 8])


@pytest.mark.parametrize(("ids", "kind"), [("numbers", np.int64), ("integers", np.int64), ("names", "U1")])
def test_arrays_without_edges(tmp_path, ids, kind):
    none = np.zeros(0, kind)
    np.savez(tmp_path / "e.npz", sources=none, targets=none, w=np.zeros((0, 3), np.float16))
    np.save(tmp_path / "k.npy", np.zeros((0, 2)))
    options = {"wanted": Wanted(ids=ids, values={"w": None}), "edge_data": {"k": tmp_path / "k.npy"}}
    assert _import(tmp_path, [tmp_path / "e.npz"], symmetrise=True, coalesce="sum", **options).num_edges == 0
    assert {name: contents(tmp_path / "out")[f"edge_{name}"].shape for name in "wk"} == {"w": (0, 3), "k": (0, 2)}


@pytest.mark.parametrize("order", ["E2", "2E", "F"])
def test_arrays_of_numpy_with_values_from_others(tmp_path, order):
    edges = _graph()
    array = edges if order == "2E" else edges.T
    np.save(tmp_path / "edges.npy", np.asarray(array, np.uint32, order="F" if order == "F" else "C"))
    values = {
        "w": np.arange(300.0),
        "rows": np.arange(900, dtype=np.int16).reshape(300, 3),
        "h": np.ones(300, np.float16),
    }
    for name, one in values.items():
        np.save(tmp_path / f"{name}.npy", one)
    data = {name: tmp_path / f"{name}.npy" for name in values}
    _import(tmp_path, [tmp_path / "edges.npy"], edge_data=data, coalesce="sum", symmetrise=True)
    _same(tmp_path / "out", _in_memory(tmp_path, *edges, None, values, coalesce="sum", symmetrise=True))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "mtx", "mtx.gz", "pattern", "symmetric"])
def test_sparse_matrices(tmp_path, kind):
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 3, (6, 6)) * rng.random((6, 6)).round(2)
    dense = dense + dense.T if kind == "symmetric" else dense
    matrix = scipy.sparse.coo_array(dense)
    if kind in ("csr", "csc", "coo"):
        path = tmp_path / "a.npz"
        scipy.sparse.save_npz(path, matrix.asformat(kind))
    else:
        path = tmp_path / "a.mtx"
        field = "pattern" if kind == "pattern" else "real"
        scipy.io.mmwrite(path, matrix, field=field, symmetry="symmetric" if kind == "symmetric" else "general")
        if kind == "mtx.gz":
            path.write_bytes(gzip.compress(path.read_bytes()))
            path = path.rename(tmp_path / "a.mtx.gz")
    _import(tmp_path, [path], edge_ids=kind != "pattern")
    expected = Graph.from_scipy(matrix.tocsr(), weight=None if kind == "pattern" else "weight")
    found = Graph.from_folder(tmp_path / "out")
    np.testing.assert_array_equal(found.host_rows()[0], expected.host_rows()[0])
    np.testing.assert_array_equal(found.host_rows()[1], expected.host_rows()[1])
    if kind != "pattern":
        arrays = contents(tmp_path / "out")
        sources = np.repeat(np.arange(6), np.diff(arrays["indptr"]))
        back = scipy.sparse.coo_array((arrays["edge_weight"], (sources, arrays["indices"])), shape=(6, 6))
        np.testing.assert_array_equal(back.todense(), dense)


def test_any_integers_are_numbered_in_order(tmp_path):
    rng = random.Random(0)
    pairs = [(rng.randrange(-(2**63), 2**63), rng.randrange(-3, 3)) for _ in range(80)] + [(-(2**63), 2**63 - 1)]
    path = _text(tmp_path / "e.txt", list(zip(*pairs, strict=True)))
    imported = _import(tmp_path, [path], wanted=Wanted(ids="integers"), symmetrise=True)
    ids, numbers = np.unique(np.array(pairs, np.int64).reshape(-1), return_inverse=True)
    numbers = numbers.reshape(-1, 2)
    expected = _in_memory(tmp_path, numbers[:, 0], numbers[:, 1], len(ids), symmetrise=True)
    _same(tmp_path / "out", expected | {"original_ids": ids})
    assert imported.num_vertices == len(ids)


@pytest.mark.parametrize("separator", [" ", ",", "  "])
def test_names_are_numbered_as_they_occur(tmp_path, separator):
    rng = random.Random(0)
    words = ["a", "bob", "größe", "x" * 40, "7", "-", "007", "1e3"] + (["two words"] if separator == "," else [])
    pairs = [(rng.choice(words), rng.choice(words)) for _ in range(80)]
    path = _text(tmp_path / "e.txt", list(zip(*pairs, strict=True)), separator)
    _import(tmp_path, [path], wanted=Wanted(ids="names"), coalesce="first")
    number: dict[str, int] = {}
    ends = np.array([[number.setdefault(name, len(number)) for name in pair] for pair in pairs])
    expected = _in_memory(tmp_path, ends[:, 0], ends[:, 1], len(number), coalesce="first")
    _same(tmp_path / "out", expected | {"original_ids": np.array([name.encode() for name in number])})


def test_a_data_set_is_what_is_saved_of_one(tmp_path):
    edges, rng = _graph(), np.random.default_rng(1)
    labels = rng.integers(-1, 4, 20)
    known = np.flatnonzero(labels >= 0)
    arrays = {
        "features": rng.standard_normal((20, 3)),
        "labels": labels,
        "train_mask": known[:5],
        "val_mask": np.isin(np.arange(20), known[5:8]),
        "pos": rng.integers(0, 9, (20, 2)),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = VertexFiles(
        features=tmp_path / "features.npy",
        labels=tmp_path / "labels.npy",
        masks={name: tmp_path / f"{name}.npy" for name in ("train_mask", "val_mask")},
        inputs={"pos": tmp_path / "pos.npy"},
        num_classes=5,
    )
    columns = [*edges, np.arange(300) / 4]
    _import(tmp_path, [_text(tmp_path / "e.txt", columns)], wanted=WEIGHTED, vertices=files, name="mine")
    graph = Graph.from_coo(*edges, 20, edge_data={"w": columns[2].astype(np.float32)})
    inputs = {"pos": arrays.pop("pos")}
    Dataset("mine", graph, **arrays, num_classes=5, vertex_inputs=inputs).save(tmp_path / "expected")
    _same(tmp_path / "out", contents(tmp_path / "expected"))
    assert Dataset.from_folder(tmp_path / "out").name == "mine"


def test_patterns_and_strange_names(tmp_path):
    _text(tmp_path / "a[1]-0.txt", [[0], [1]])
    _text(tmp_path / "a[1]-1.txt", [[1], [2]])
    _import(tmp_path, [tmp_path / "a[1]-0.txt", str(tmp_path / "a[[]1]-?.txt")])
    assert contents(tmp_path / "out")["indices"].tolist() == [1, 1, 2]
    with pytest.raises(GraphError, match=r"no file matches '.*b\*\.txt'"):
        _import(tmp_path, [tmp_path / "b*.txt"])


HEADS = {
    "commented": ("# source target\n0 1\n1 2\n2 0\n", {"header": True}, 3),
    "commented, undetected": ("# of 3 edges\n0 1\n1 2\n2 0\n", {}, 3),
    "header": ("from,to\n0,1\n1,2\n", {}, 2),
    "quoted header": ('# c\n"when",target,source,w\n5,1,0,2.5\n6,2,1,3.5\n', {"values": {"w": None}}, 2),
    "names of columns of names": ("source,target\na,b\nb,c\n", {"ids": "names"}, 2),
    "names without header": ("ann bob\nbob cem\n", {"ids": "names"}, 2),
    "semicolons": ("0;1\n1;2\n", {}, 2),
    "blanks after commas": ("0, 1\n1 ,2\n", {}, 2),
    "byte order mark": ("\ufeff0 1\n1 2\n", {}, 2),
    "mixed line ends": ("0 1\r\n1 2\n2 3\r\n", {}, 3),
    "no line end": ("0 1\n1 2", {}, 2),
    "quotes": ('"a b" c\nc "d"\n', {"ids": "names"}, 2),
    "quoted commas": ('"a,b",c\nc,"d ""x"""\n', {"ids": "names"}, 2),
    "comments between": ("0,1\n# a, b\n1,2\n% x\n", {}, 2),
    "names like comments": ("#a b\nb #c\n%d #a\n", {"ids": "names", "comments": ""}, 3),
    "comments between names": ("a b\n# of b\nb c\n", {"ids": "names", "comments": "#"}, 2),
    "plus": ("+1 2\n003 4\n", {}, 2),
    "separator": ("0|1\n1|2\n", {"separator": "|"}, 2),
    "empty": ("", {}, 0),
    "only comments": ("# nothing\n", {}, 0),
}


@pytest.mark.parametrize("case", HEADS)
def test_layouts_of_text(tmp_path, case):
    content, options, edges = HEADS[case]
    (tmp_path / "e.txt").write_text(content)
    assert _import(tmp_path, [tmp_path / "e.txt"], wanted=Wanted(**options)).num_edges == edges


BAD = {
    "line": ("1 2\n# c\n3 x\n", {}, r"e\.txt, line 3, has in column 2 not an integer: '3 x'"),
    "header": ("source of\n1 2\nx 3\n", {}, r"line 3, has in column 1 not an integer: 'x 3'"),
    "no header": ("1 2\n3 4\n", {"header": True}, "--header is given, but '1 2' holds numbers and no names"),
    "columns": (
        "1 2 3\n",
        {},
        r"e\.txt has 3 columns, expected 2: say what they are, as --columns source,target,weight",
    ),
    "more columns": ("1 2\n3 4 5\n", {}, r"line 2, has 3 columns, expected 2: '3 4 5'"),
    "fewer columns": ("1,2\n3\n", {}, r"line 2, has 1 column, expected 2: '3'"),
    "named": ("1 2 3\n", {"columns": ("source", "target")}, r"has 3 columns, and --columns names 2, source,target"),
    "no column": ("1 2\n", {"source": "sorce"}, r"e\.txt has no column 'sorce': did you mean source"),
    "twice": ("1 2 3\n", {"columns": ("a", "a", "b")}, "two columns are called 'a'"),
    "the same": ("1 2\n", {"columns": ("a", "b"), "target": "a"}, "sources and targets are both column 'a'"),
    "negative": ("1 2\n\n5 -1\n", {}, r"e\.txt, line 3: '5 -1': target -1 is negative: must be ≥ 0 and < the most"),
    "large": (
        "1 2\n2147483647 1\n",
        {},
        r"line 2: '2147483647 1': source 2147483647 is out of range: .* --ids integers",
    ),
    "fraction": ("1 2\n1.5 3\n", {}, r"line 2, has in column 1 not an integer: '1.5 3'"),
    "hexadecimal": ("1 2\n0x10 3\n", {}, r"line 2, has in column 1 not an integer: '0x10 3'"),
    "65 bits": ("1 2\n9223372036854775808 3\n", {"ids": "integers"}, "an integer that does not fit 64 bits"),
    "blank name": ('a,b\n" ",c\n', {"ids": "names"}, r"line 2, has in column 1 no name"),
    "empty name": ("a,b\n,c\n", {"ids": "names"}, r"line 2, has in column 1 no name: ',c'"),
    "NUL": ("a\0,a\nb,a\0\0\n", {"ids": "names"}, "line 1: .* has a name that contains NUL"),
    "long name": ("a,b\nc," + "x" * 1025 + "\n", {"ids": "names"}, "line 2: .* has a name that has 1,025 bytes"),
    "doubtful": ("#a b\nb c\n", {"ids": "names"}, "'#a b' may be a comment or an edge: --comments"),
    "doubtful later": ("a b\n%b c\n", {"ids": "names"}, "line 2: '%b c' may be a comment or an edge: --comments"),
    "open quote": ('"a b\nc d\n', {"ids": "names"}, "cannot be split into columns"),
    "small type": (
        "0 1 300\n",
        {"columns": COLUMNS[:3], "values": {"w": np.dtype(np.int8)}},
        r"has in column 3 a w that int8",
    ),
    "nan": ("0 1 0.5\n1 2 nan\n", {"columns": COLUMNS[:3]}, r"line 2, has in column 3 a w that is not finite: --allow"),
    "infinite": ("0 1 1e39\n", {"columns": COLUMNS[:3]}, r"line 1, has in column 3 a w that is not finite"),
    "no number": ("0 1 0.5\n1 2 x\n", {"columns": COLUMNS[:3]}, r"line 2, has in column 3 not a number: '1 2 x'"),
    "latin": ("a b\n", {"ids": "names"}, r"is no text in UTF-8: convert it"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lines(tmp_path, case):
    content, options, message = BAD[case]
    (tmp_path / "e.txt").write_bytes(b"gr\xfc b\n" if case == "latin" else content.encode())
    with pytest.raises(GraphError, match=message):
        _import(tmp_path, [tmp_path / "e.txt"], wanted=Wanted(**options))
    assert [path.name for path in tmp_path.iterdir()] == ["e.txt"]


def test_values_that_are_not_finite_if_allowed(tmp_path):
    (tmp_path / "e.txt").write_text("0 1 inf\n1 2 nan\n2 0 -1e99\n")
    _import(tmp_path, [tmp_path / "e.txt"], wanted=WEIGHTED._replace(nonfinite=True))
    expected = np.array([np.inf, np.nan, -np.inf], np.float32)
    np.testing.assert_array_equal(contents(tmp_path / "out")["edge_w"], expected)
    np.savez(tmp_path / "e.npz", edge_index=[[0, 1, 2], [1, 2, 0]], w=expected)
    np.save(tmp_path / "k.npy", expected.reshape(3, 1))
    wanted, data = Wanted(values={"w": None}, nonfinite=True), {"k": tmp_path / "k.npy"}
    _import(tmp_path, [tmp_path / "e.npz"], wanted=wanted, edge_data=data)
    np.testing.assert_array_equal(contents(tmp_path / "out")["edge_w"], expected)
    np.testing.assert_array_equal(contents(tmp_path / "out")["edge_k"], expected.reshape(3, 1))


@pytest.mark.parametrize("kind", ["npz", "parquet", "scipy", "mtx", "edge data"])
@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (np.nan, None, "a w(eight)? that is not finite: --allow-nonfinite"),
        (1e300, "float16", "a w(eight)? that is not finite: --allow-nonfinite"),
        (1.5, "int64", "not an integer"),
        (300, "int8", "a w(eight)? that int8 does not hold"),
    ],
)
def test_values_that_their_type_does_not_hold(tmp_path, kind, value, dtype, message):
    """No format wraps, cuts or rounds a value."""
    ends, weights = np.array([[0, 1, 2], [1, 2, 0]]), np.array([1.0, value, 2.0])
    name, options = "weight" if kind in ("scipy", "mtx") else "w", {}
    path = tmp_path / {"scipy": "e.npz", "edge data": "e.npy"}.get(kind, f"e.{kind}")
    if kind == "npz":
        np.savez(path, sources=ends[0], targets=ends[1], w=weights)
    elif kind == "parquet":
        with duckdb.connect() as database:
            database.register("arrays", {"source": ends[0], "target": ends[1], "w": weights})
            rows = "SELECT source, target, coalesce(w, 'nan'::DOUBLE) AS w FROM arrays"  # NaN of arrays is NULL
            database.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    elif kind == "edge data":
        if dtype is not None:  # it keeps the type of the file
            return
        np.save(path, ends)
        np.save(tmp_path / "w.npy", weights)
        options = {"edge_data": {"w": tmp_path / "w.npy"}}
    else:
        matrix = scipy.sparse.coo_array((weights, ends), shape=(3, 3))
        scipy.sparse.save_npz(path, matrix) if kind == "scipy" else scipy.io.mmwrite(path, matrix)
    values = None if kind == "edge data" else {name: None if dtype is None else np.dtype(dtype)}
    with pytest.raises(GraphError, match=rf"(edge 1|row 2), has in column {name} {message}"):
        _import(tmp_path, [path], wanted=Wanted(values=values), **options)
    if dtype is not None and value != 1e300:
        held = Wanted(values={name: np.dtype("float64" if value == 1.5 else "int16")})
        _import(tmp_path, [path], wanted=held)
        assert sorted(contents(tmp_path / "out")[f"edge_{name}"].tolist()) == sorted(weights.tolist())


def test_a_bad_line_far_in_a_file_is_numbered_rightly(tmp_path):
    rows = [f"{k % 7} {k % 5}\n" for k in range(5000)]
    rows[4321] = "5 oops\n"
    rows[17] = "# c\n"
    (tmp_path / "e.txt").write_text("".join(rows))
    with pytest.raises(GraphError, match=r"e\.txt, line 4,322, has in column 2 not an integer: '5 oops'"):
        _import(tmp_path, [tmp_path / "e.txt"])


def test_irregular_lines_after_the_first_thousand(tmp_path):
    """Comments, blanks and quotes that DuckDB's CSV reader does not take."""
    rows = ["0 1\n"] * 1500 + ["# c\n", "\n", "  2   0\n", "1 2\n"]
    (tmp_path / "e.txt").write_text("".join(rows))
    assert _import(tmp_path, [tmp_path / "e.txt"]).num_edges == 1502


FORMATS = {
    "bz2": ("e.txt.bz2", b"BZh91AY&SY", "is compressed by bz2, which is not read"),
    "xz": ("e.txt.xz", b"\xfd7zXZ\0\0", "is compressed by xz, which is not read"),
    "zip": ("e.csv", b"PK\3\4\0\0\0\0", "is compressed by ZIP, which is not read"),
    "METIS": ("p.graph", b"4 4\n3 4\n4 3\n2 1\n1 2\n", "is a METIS graph by its name"),
    "MatrixMarket": ("w.mtx", b"%%MatrixMarket matrix\n", "is no MatrixMarket file, or is damaged"),
    "NumPy": ("e.npy", b"\x93NUMPY nothing", "is no array of np.save, or is damaged"),
    "Parquet": ("e.parquet", b"PAR1", "is no Parquet file, or is damaged"),
    "JSON": ("e.jsonl", b'{"source": 1, "target": 2}\n{"sour', "is no file of JSON lines, or is damaged"),
    "JSON value": (
        "e.jsonl",
        b'{"source": 1, "target": 2}\n{"source": 1.5, "target": 2}\n',
        "row 2, has in column source",
    ),
    "JSON truth value": (
        "e.jsonl",
        b'{"source": 1, "target": 2, "w": 1}\n{"source": 1, "target": 2, "w": "true"}\n',
        "row 2, has a value that is not read: '1, 2, true'",
    ),
    "JSON without": (
        "e.jsonl",
        b'{"source": 1, "target": 2}\n{"source": 1}\n',
        "row 2, has in column target not an integer",
    ),
}


@pytest.mark.parametrize("case", FORMATS)
def test_files_of_other_kinds(tmp_path, case):
    name, content, message = FORMATS[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GraphError, match=message):
        _import(tmp_path, [tmp_path / name])


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("damage", ["cut", "checksum", "rest"])
def test_damaged_compressed_files(tmp_path, kind, damage):
    path = _write(tmp_path, 0, kind, list(_graph(num_edges=3000)))
    content = bytearray(path.read_bytes())
    if damage == "checksum":
        content[-6] ^= 1
    path.write_bytes(content[:-600] if damage == "cut" else content + b"more" if damage == "rest" else content)
    if (kind, damage) == ("zst", "checksum"):  # DuckDB writes none; the last bytes are data
        return
    with pytest.raises(GraphError, match=r"0\..* is damaged, or cut off .*: get it again"):
        _import(tmp_path, [path])


ARRAYS = {
    "names": ({"x": np.zeros(3)}, {}, r"has no array sources: choose from x"),
    "three": ({"edge_index": np.zeros((3, 4), int)}, {}, r"edge_index has shape \[3, 4\], expected \[2, E\]"),
    "lengths": (
        {"sources": np.zeros(3, int), "targets": np.zeros(4, int)},
        {},
        r"targets has shape \[4\], expected \[3\]",
    ),
    "floats": ({"sources": np.zeros(3), "targets": np.zeros(3, int)}, {}, "sources must hold integers, got float64"),
    "text": ({"edge_index": np.array([["a"], ["b"]])}, {}, "must hold integers, got <U1: --ids names if vertices"),
    "64 bits": (
        {"edge_index": np.array([[2**63], [1]], np.uint64)},
        {"ids": "integers"},
        r"an integer that does not fit 64 bits: \(9223372036854775808, 1\)",
    ),
    "text values": (
        {"edge_index": np.zeros((2, 3), int), "w": np.array(["a", "b", "c"])},
        {"values": {"w": None}},
        "w must be real numbers, got <U1",
    ),
    "no values": (
        {"edge_index": np.zeros((2, 3), int), "w": np.zeros((3, 0))},
        {"values": {"w": None}},
        "at least one",
    ),
    "small type": (
        {"edge_index": np.zeros((2, 2), int), "w": np.array([[1, 2], [3, 300]])},
        {"values": {"w": np.dtype(np.int8)}},
        r"e\.npz, edge 1, has in column w a w that int8 does not hold: say w:int64: \(0, 0, 3, 300\)",
    ),
    "name": ({"edge_index": np.array([[b"a"], [b"\xff"]])}, {"ids": "names"}, "has a name that is no text in UTF-8"),
    "no name": (
        {"edge_index": np.array([["a"], [""]])},
        {"ids": "names"},
        r"edge 0, has in column edge_index\[1\] no name",
    ),
    "name of a number": (
        {"edge_index": np.zeros((2, 1))},
        {"ids": "names"},
        "must hold integers or names, got float64",
    ),
    "one axis": (np.zeros(4, int), {}, r"must be edges \[E, 2\] or \[2, E\], got int64 \[4\]"),
    "two by two": (np.zeros((2, 2), int), {}, r"is \[2, 2\], which may be"),
    "float edges": (np.zeros((3, 2)), {}, "must hold integers, got float64"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_are_no_edges(tmp_path, case):
    content, options, message = ARRAYS[case]
    path = tmp_path / ("e.npz" if isinstance(content, dict) else "e.npy")
    np.savez(path, **content) if isinstance(content, dict) else np.save(path, content)
    with pytest.raises(GraphError, match=message):
        _import(tmp_path, [path], wanted=Wanted(**options))


def test_arguments_that_do_not_fit(tmp_path):
    source = _text(tmp_path / "e.txt", _graph())
    weighted = _text(tmp_path / "w.txt", [*_graph(), range(300)])
    np.save(tmp_path / "w.npy", np.zeros(299))
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    features = VertexFiles(features=tmp_path / "x.npy")
    for sources, options, message in (
        ([source], {"coalesce": "sum"}, 'coalesce="sum" adds the values of equal edges, but these edges have none'),
        ([weighted], {"wanted": WEIGHTED, "edge_ids": False}, "edge_data w with edge_ids=False"),
        ([source], {"num_vertices": 10, "wanted": Wanted(ids="integers")}, "num_vertices is given, and so are ids="),
        ([source], {"num_vertices": 10}, r"source 1[0-9] is out of range: must be ≥ 0 and < num_vertices = 10"),
        ([source], {"edge_data": {"w": tmp_path / "w.npy"}}, r"w has 299 rows, and there are 300 edges"),
        ([source], {"vertices": features, "num_vertices": 20}, "have 30 rows, and num_vertices is 20"),
        (
            [source],
            {"vertices": features, "wanted": Wanted(ids="integers")},
            "features is given without --key, and --ids",
        ),
        ([source], {"vertices": features, "wanted": Wanted(ids="names")}, "features is given without --key, and --ids"),
        (
            [source],
            {"vertices": VertexFiles(masks={"train_mask": tmp_path / "x.npy"})},
            "train_mask is given without labels",
        ),
        ([source, weighted], {}, "has 3 columns"),
        ([tmp_path], {}, "is a folder"),
        (["/dev/zero"], {}, "/dev/zero is no regular file, and an import reads files several times"),
        ([tmp_path / "pipe"], {}, "pipe is no regular file"),
        (
            [source],
            {"vertices": VertexFiles(features=tmp_path / "pipe"), "num_vertices": 20},
            "pipe is no regular file",
        ),
        ([source], {"name": "a\x1b[31m"}, r"the data set's name 'a\\x1b\[31m' has a control character"),
        ([], {}, "there is nothing to import"),
    ):
        with pytest.raises(GraphError, match=message):
            _import(tmp_path, sources, **options)
        assert not list(tmp_path.glob(".out.dorylax-*"))
    with pytest.raises(FileNotFoundError):
        _import(tmp_path, [tmp_path / "absent.txt"])


SUMS = {"int8": (100, "int64"), "float16": (60000, "float32")}


@pytest.mark.parametrize("dtype", SUMS)
def test_sums_that_exceed_their_type(tmp_path, dtype):
    value, wider = SUMS[dtype]
    (tmp_path / "e.csv").write_text(f"0,1,{value}\n2,0,1\n0,1,{value}\n")
    wanted = WEIGHTED._replace(values={"w": np.dtype(dtype)})
    with pytest.raises(GraphError, match=rf"sum of w over the edges 0 → 1 exceeds {dtype}: --values w:{wider}"):
        _import(tmp_path, [tmp_path / "e.csv"], wanted=wanted, coalesce="sum")
    _import(tmp_path, [tmp_path / "e.csv"], wanted=wanted._replace(values={"w": np.dtype(wider)}), coalesce="sum")


@pytest.mark.parametrize("how", ["written to", "gone"])
@pytest.mark.parametrize("ids", ["numbers", "names"])
@pytest.mark.parametrize("which", ["e.txt", "x.csv", "w.npy"])
def test_a_source_that_changes_meanwhile(tmp_path, monkeypatch, which, ids, how):
    """Between the passes over edges and ids, or over tables of vertices."""
    source = _text(tmp_path / "e.txt", _graph())
    (tmp_path / "x.csv").write_text("id,x\n" + "".join(f"{k},{k}\n" for k in range(20)))
    np.save(tmp_path / "w.npy", np.zeros(300))
    real_load = module._load

    def load(*arguments, **options):
        real_load(*arguments, **options)
        os.utime(tmp_path / which) if how == "written to" else (tmp_path / which).unlink()

    monkeypatch.setattr(module, "_load", load)
    vertices, edge_data = VertexFiles(features=tmp_path / "x.csv", key="id"), {"w": tmp_path / "w.npy"}
    with pytest.raises(
        GraphError, match=rf"{which} has changed since the import began \(it (was|is) {how}\): import it"
    ):
        _import(tmp_path, [source], wanted=Wanted(ids=ids), vertices=vertices, edge_data=edge_data)
    assert not (tmp_path / "out").exists()


def test_what_it_takes_is_said_before(tmp_path, monkeypatch):
    source = _text(tmp_path / "e.txt", _graph())
    told = []
    _import(tmp_path, [source], expected=told.append)
    (estimate,) = told
    assert estimate.edges == 300
    assert estimate.folder_bytes == 300 * 8 + 20 * 8
    assert estimate.detected == (
        f"{source}: text, fields separated by blanks (--separator), no header (--header), sources source (--source), "
        "targets target (--target), values none (--values), vertices are numbers (--ids)",
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9000, 4000, 5000))
    with pytest.raises(OSError, match=r"about 300 edges take about 0\.0 GiB of disk, .* are free: --out on another"):
        _import(tmp_path, [source])
    _same(tmp_path / "out", _in_memory(tmp_path, *_graph()))  # the old folder stays


def test_a_vertex_far_away_is_in_the_estimate(tmp_path, monkeypatch):
    (tmp_path / "e.csv").write_text("100000000,1\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9000, 4000, 2**29))
    told = []
    with pytest.raises(OSError, match=r"about 1 edges take about 0\.7 GiB of disk"):
        _import(tmp_path, [tmp_path / "e.csv"], expected=told.append)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
def test_no_more_memory_than_was_given(tmp_path):
    """A process of its own imports edges that take several times its buffers."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "e.npy", rng.integers(0, 1_000_000, (3_000_000, 2), dtype=np.int32))
    program = (
        "from dorylax.graph.from_files.import_graph import import_graph\n"
        f"import_graph([{str(tmp_path / 'e.npy')!r}], {str(tmp_path / 'out')!r}, memory=2**28, symmetrise=True)\n"
        # Not `ru_maxrss`, which begins with what the process had before it ran another program.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 1.1 * 2**28


@pytest.mark.parametrize("num_edges", [90, 150, 250])
@pytest.mark.parametrize("symmetrise", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_edges_that_are_more_than_have_ids(tmp_path, monkeypatch, num_edges, symmetrise, twice):
    """As of more than 2³¹ edges: those that were given, or those with their reverses, if they have none of their own."""
    monkeypatch.setattr("dorylax.graph.rows.MAX_EDGE_IDS", 200)
    edges = _graph(num_edges=num_edges // (1 + twice))
    edges = np.concatenate([edges, edges[::-1]], axis=1) if twice else edges
    imported = _import(tmp_path, [_text(tmp_path / "e.txt", edges)], symmetrise=symmetrise)
    expected = _in_memory(tmp_path, *edges, None, symmetrise=symmetrise)
    _same(tmp_path / "out", expected)
    assert imported.edge_ids == ("edge_ids" in expected)
    weighted = _text(tmp_path / "w.txt", [*edges, range(edges.shape[1])])
    if imported.edge_ids:
        _import(tmp_path, [weighted], symmetrise=symmetrise, wanted=WEIGHTED)
    else:
        with pytest.raises(GraphError, match="do not fit int32"):
            _import(tmp_path, [weighted], symmetrise=symmetrise, wanted=WEIGHTED)


def test_objects_of_s3(tmp_path, monkeypatch):
    """Through boto3, never through an extension of DuckDB."""
    asked = []

    class Storage:
        def __init__(self, location):
            self.location = location

        def copy_to(self, name, file):
            asked.append((str(self.location), name))
            file.write(b"0 1\n1 2\n")

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(files, "S3Storage", Storage)
    assert _import(tmp_path, ["s3://bucket/some/edges.txt"]).num_edges == 2
    assert asked == [("s3://bucket/some", "edges.txt"), "closed"]


def test_nothing_is_downloaded(tmp_path):
    """DuckDB neither installs nor loads an extension for a file that would need one."""
    from dorylax.graph.from_files.database import Database

    with Database(tmp_path, 1 << 28, 1, lambda _: None) as database, pytest.raises(duckdb.Error, match="httpfs"):
        database.rows("SELECT * FROM read_csv('s3://bucket/edges.csv')")
