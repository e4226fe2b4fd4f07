"""An import is what the in-memory builder and `save_npz` give, array for array, however often it is interrupted."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylax.folder_lock import locked
from dorylax.graph import transpose
from dorylax.graph.dataset import Dataset
from dorylax.graph.graph import Graph
from dorylax.graph.stream import external_sort, import_job, lines, native
from dorylax.graph.stream.import_job import DiskSpaceError, ImportHeldError, ImportJob
from dorylax.graph.stream.readers.base import Wanted
from dorylax.graph.stream.vertex_data import VertexFiles
from dorylax.graph.validate import GraphError

TINY = 3_000  # bytes of buffers: many runs, and more than are merged at once


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(external_sort, "_FEWEST", 7)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of hundreds of files


def _arrays(path):
    with np.load(path) as found:
        return {name: found[name] for name in found.files if name != "checksums.json"}


def _same(path, expected):
    found = _arrays(path)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name


def _in_memory(folder, sources, targets, num_vertices, values=None, *, symmetrise=False, **options):
    graph = Graph.from_coo(
        np.asarray(sources, np.int64), np.asarray(targets, np.int64), num_vertices, edge_data=values, **options
    )
    (graph.symmetrise() if symmetrise else graph).save_npz(folder / "expected.npz")
    return _arrays(folder / "expected.npz")


def _text(path, columns, separator=" ", junk=False):
    rows = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    if junk:
        rows = [part for row in rows for part in (row, "# comment", "")]
    content = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _job(folder, sources, **options):
    wanted = options.pop("wanted", Wanted())
    return ImportJob(
        tuple(sources),
        folder / "out.npz",
        options.pop("buffers", TINY),
        wanted._replace(piece=options.pop("piece", 60)),
        **options,
    )


EDGES = st.integers(1, 8).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=120))
)


def _write(folder, number, kind, columns):
    """Some edges as a file of one format."""
    if kind == "text":
        return _text(folder / f"{number}.txt", columns, junk=True)
    if kind == "csv":
        return _text(folder / f"{number}.csv", columns, ",")
    if kind == "gz":
        return _text(folder / f"{number}.tsv.gz", columns, "\t")
    path = folder / f"{number}.npz"
    arrays = dict(zip(("sources", "targets", "w", "k"), map(np.asarray, columns), strict=False))
    (np.savez_compressed if kind == "packed" else np.savez)(
        path,
        **{
            name: array.astype(np.int64) if name in "sources targets k" else array.astype(np.float32)
            for name, array in arrays.items()
        },
    )
    return path


@settings(max_examples=150, deadline=None)
@given(
    EDGES,
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([False, "first", "sum"]), st.booleans(), st.booleans()),
    st.lists(st.sampled_from(["text", "csv", "gz", "npz", "packed"]), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_an_archive_is_what_is_built_in_memory(tmp_path_factory, edges, options, kinds, random):
    with_values, symmetrise, coalesce, ordered, edge_ids = options
    buffers = random.choice([1, TINY, 100_000])
    num_vertices, pairs = edges
    coalesce = "first" if coalesce == "sum" and not with_values else coalesce
    edge_ids = edge_ids or with_values
    pairs = sorted(pairs) if ordered else pairs
    folder = tmp_path_factory.mktemp("import")
    values = [(random.choice([0.5, 0.1, -3.25, 1e9]), random.randrange(-5, 5)) for _ in pairs]
    cuts = sorted(random.randrange(len(pairs) + 1) for _ in kinds[1:])
    sources = []
    for number, (kind, first, end) in enumerate(zip(kinds, [0, *cuts], [*cuts, len(pairs)], strict=True)):
        rows = [
            [*pair, *(value if with_values else ())]
            for pair, value in zip(pairs[first:end], values[first:end], strict=True)
        ]
        columns = list(zip(*rows, strict=True)) or [()] * (4 if with_values else 2)
        sources.append(_write(folder, number, kind, columns))
    wanted = Wanted(
        columns=("sources", "targets", "w", "k") if with_values else ("sources", "targets"),
        source="sources",
        target="targets",
        values={"w": np.dtype(np.float32), "k": np.dtype(np.int64)} if with_values else None,
    )
    # A file without lines cannot show how many columns it has.
    sources = [
        path for path in sources if path.stat().st_size and (path.suffix == ".npz" or _has_rows(path))
    ] or sources[:1]
    if not pairs and with_values and sources[0].suffix != ".npz":
        return
    imported = _job(
        folder,
        sources,
        wanted=wanted if with_values or pairs else Wanted(),
        buffers=buffers,
        num_vertices=num_vertices,
        symmetrise=symmetrise,
        coalesce=coalesce,
        edge_ids=edge_ids,
    ).run()
    data = {"w": np.array([w for w, _ in values], np.float32), "k": np.array([k for _, k in values], np.int64)}
    expected = _in_memory(
        folder,
        [u for u, _ in pairs],
        [v for _, v in pairs],
        num_vertices,
        data if with_values else None,
        symmetrise=symmetrise,
        coalesce=coalesce,
        edge_ids=edge_ids,
    )
    _same(folder / "out.npz", expected)
    assert (imported.num_edges, imported.edges_read) == (len(expected["indices"]), len(pairs))
    assert imported.symmetric == (not expected["directed"])
    assert not (folder / "out.npz.import").exists()


def _has_rows(path):
    content = path.read_bytes()
    return bool(gzip.decompress(content) if path.suffix == ".gz" else content)


def _graph(seed=0, num_edges=300, num_vertices=20):
    rng = np.random.default_rng(seed)
    return rng.integers(0, num_vertices, (2, num_edges))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("order", ["E2", "2E"])
def test_arrays_of_numpy_with_values_from_others(tmp_path, order, by_columns):
    edges = _graph()
    array = edges if order == "2E" else edges.T
    np.save(tmp_path / "edges.npy", np.asarray(array, np.uint32, order="F" if by_columns else "C"))
    values = {"w": np.arange(300.0), "rows": np.arange(900, dtype=np.int16).reshape(300, 3)}
    for name, one in values.items():
        np.save(tmp_path / f"{name}.npy", one)
    data = {name: tmp_path / f"{name}.npy" for name in values}
    _job(tmp_path, [tmp_path / "edges.npy"], edge_data=data, coalesce="sum", symmetrise=True, piece=200).run()
    expected = _in_memory(tmp_path, *edges, None, values, coalesce="sum", symmetrise=True)
    _same(tmp_path / "out.npz", expected)


@pytest.mark.parametrize("at", [0, 700, -30])
def test_damaged_parquet(tmp_path, at):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"u": _graph()[0], "v": _graph()[1]}), tmp_path / "e.parquet")
    content = bytearray((tmp_path / "e.parquet").read_bytes())
    content[at : at + 20 or None] = b"\xff" * 20
    (tmp_path / "e.parquet").write_bytes(content if at else content[:-9])
    with pytest.raises(
        GraphError, match=r"e\.parquet.* (is no Parquet file, or is damaged|has a|is negative|out of range)"
    ):
        _job(tmp_path, [tmp_path / "e.parquet"]).run()


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "edges.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"edges\.parquet: Parquet is read by pyarrow: pip install pyarrow"):
        _job(tmp_path, [tmp_path / "edges.parquet"]).run()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)), max_size=80), st.sampled_from([1, TINY])
)
def test_any_integers_are_numbered_in_order(tmp_path_factory, pairs, buffers):
    folder = tmp_path_factory.mktemp("import")
    path = _text(folder / "e.txt", list(zip(*pairs, strict=True)) or [[], []])
    imported = _job(folder, [path], wanted=Wanted(ids="integers"), buffers=buffers, symmetrise=True).run()
    ids, numbers = np.unique(np.array(pairs, np.int64).reshape(-1), return_inverse=True)
    numbers = numbers.reshape(-1, 2)
    expected = _in_memory(folder, numbers[:, 0], numbers[:, 1], len(ids), symmetrise=True)
    _same(folder / "out.npz", expected | {"original_ids": ids})
    assert imported.num_vertices == len(ids)


@pytest.mark.parametrize("native_too", [True, False])
@settings(max_examples=25, deadline=None)
@given(
    pairs=st.lists(st.tuples(*[st.sampled_from(["a", "bob", "größe", "x" * 40, "7", "-"])] * 2), max_size=80),
    buffers=st.sampled_from([1, TINY]),
)
def test_names_are_numbered_as_they_occur(tmp_path_factory, native_too, pairs, buffers):
    folder = tmp_path_factory.mktemp("import")
    path = _text(folder / "e.txt", list(zip(*pairs, strict=True)) or [[], []])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DORYLAX_NATIVE", "" if native_too else "0")
        _job(folder, [path], wanted=Wanted(ids="names"), buffers=buffers, coalesce="first").run()
    number: dict[str, int] = {}
    ends = np.array([[number.setdefault(name, len(number)) for name in pair] for pair in pairs]).reshape(-1, 2)
    expected = _in_memory(folder, ends[:, 0], ends[:, 1], len(number), coalesce="first")
    names = np.array([name.encode() for name in number] or np.zeros(0, "S1"))
    _same(folder / "out.npz", expected | {"original_ids": names})


def test_names_of_arrays(tmp_path):
    np.save(tmp_path / "e.npy", np.array([["a", "b"], ["b", "größe"], ["a", "a"]]))
    _job(tmp_path, [tmp_path / "e.npy"], wanted=Wanted(ids="names")).run()
    with np.load(tmp_path / "out.npz") as found:
        assert [name.decode() for name in found["original_ids"]] == ["a", "b", "größe"]


def test_names_with_equal_hashes_get_others(tmp_path, monkeypatch):
    """Under the first two seeds all names of one length have the same hash."""
    monkeypatch.setenv("DORYLAX_NATIVE", "0")
    real = lines._hashes
    monkeypatch.setattr(
        lines, "_hashes", lambda name, seed: (len(name), real(name, seed)[1]) if seed < 2 else real(name, seed)
    )
    path = _text(tmp_path / "e.txt", [["a", "c", "b"] * 20, ["b", "a", "a"] * 20])
    _job(tmp_path, [path], wanted=Wanted(ids="names")).run()
    with np.load(tmp_path / "out.npz") as found:
        assert found["original_ids"].tolist() == [b"a", b"b", b"c"]
        assert found["indptr"].tolist() == [0, 20, 40, 60]


def _data(folder, num_vertices=20):
    rng = np.random.default_rng(1)
    labels = rng.integers(-1, 4, num_vertices)
    known = np.flatnonzero(labels >= 0)
    arrays = {
        "features": rng.standard_normal((num_vertices, 3)),
        "labels": labels,
        "train_mask": known[:5],
        "val_mask": np.isin(np.arange(num_vertices), known[5:8]),
        "pos": rng.integers(0, 9, (num_vertices, 2)),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    files = VertexFiles(
        features=folder / "features.npy",
        labels=folder / "labels.npy",
        masks={name: folder / f"{name}.npy" for name in ("train_mask", "val_mask")},
        inputs={"pos": folder / "pos.npy"},
        num_classes=5,
    )
    return arrays, files


def test_a_data_set_is_what_is_saved_of_one(tmp_path):
    edges = _graph()
    arrays, files = _data(tmp_path)
    columns = [*edges, np.arange(300) / 4]
    wanted = Wanted(columns=("source", "target", "w"))
    _job(tmp_path, [_text(tmp_path / "e.txt", columns)], wanted=wanted, vertices=files, name="mine").run()
    graph = Graph.from_coo(*edges, 20, edge_data={"w": columns[2].astype(np.float32)})
    inputs = {"pos": arrays.pop("pos")}
    Dataset("mine", graph, **arrays, num_classes=5, vertex_inputs=inputs).save_npz(tmp_path / "expected.npz")
    _same(tmp_path / "out.npz", _arrays(tmp_path / "expected.npz"))
    assert Dataset.from_npz(tmp_path / "out.npz").name == "mine"


class _KillError(Exception):
    pass


def _killed(monkeypatch, after):
    """The `after`-th file that is put on disk is the last, as if the process ended there."""
    calls = 0

    def fsync(descriptor):
        nonlocal calls
        calls += 1
        if calls == after:
            raise _KillError

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("ids", ["numbers", "integers", "names"])
def test_an_import_that_is_interrupted_anywhere_goes_on(tmp_path, monkeypatch, ids):
    edges = _graph()
    values = np.arange(300) / 8
    source = _text(tmp_path / "a.txt", [*edges[:, :100], values[:100]])
    more = _text(tmp_path / "b.csv.gz", [*edges[:, 100:], values[100:]], ",")
    wanted = Wanted(columns=("source", "target", "w"), ids=ids)
    options = {"wanted": wanted, "symmetrise": True, "coalesce": "sum", "piece": 200, "buffers": 40_000}
    whole = tmp_path / "whole"
    whole.mkdir()
    _job(whole, [source, more], **options).run()
    times = 0
    with pytest.MonkeyPatch.context() as patch:
        for after in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 10**9):
            with contextlib.suppress(_KillError):
                _killed(patch, after)
                _job(tmp_path, [source, more], **options).run()
                break
            patch.undo()
            times += 1
    assert times >= 3
    _same(tmp_path / "out.npz", _arrays(whole / "out.npz"))
    assert not (tmp_path / "out.npz.import").exists()


def test_reading_goes_on_where_it_was(tmp_path, monkeypatch):
    """What is in runs is not read again."""
    edges = _graph(num_edges=2000)
    source = _text(tmp_path / "e.txt", edges)
    seen = []

    def progress(now):
        seen.append(now.edges)
        if len(seen) == 150:
            raise _KillError

    with pytest.raises(_KillError):
        _job(tmp_path, [source], progress=progress).run()
    assert seen[-1] > 1000
    read = []
    _job(tmp_path, [source], progress=lambda now: read.append(now.edges) if now.stage == "edges" else None).run()
    assert read[0] > seen[-1] - 200
    _same(tmp_path / "out.npz", _in_memory(tmp_path, *edges, None))


@pytest.mark.parametrize("step", ["made", "moved"])
def test_a_kill_after_the_archive_was_written(tmp_path, monkeypatch, step):
    source = _text(tmp_path / "e.txt", _graph())
    real = import_job.move_file

    def move(path, out):
        if step == "moved":
            real(path, out)
        raise _KillError

    monkeypatch.setattr(import_job, "move_file", move)
    with pytest.raises(_KillError):
        _job(tmp_path, [source]).run()
    monkeypatch.undo()
    monkeypatch.setattr(ImportJob, "_read", lambda *_: pytest.fail("read again"))
    imported = _job(tmp_path, [source]).run()
    assert imported.num_edges == 300
    _same(tmp_path / "out.npz", _in_memory(tmp_path, *_graph(), None))


def test_what_is_killed_by_the_system_goes_on(tmp_path):
    """`dorylax import`, killed again and again a little later."""
    edges = _graph(num_edges=60_000, num_vertices=5_000)
    source = _text(tmp_path / "e.txt", edges)
    program = (
        "from pathlib import Path; from dorylax.graph.stream.import_job import ImportJob; "
        "from dorylax.graph.stream.readers.base import Wanted; "
        f"job = ImportJob((Path({str(source)!r}),), Path({str(tmp_path / 'out.npz')!r}), 400_000, "
        "Wanted(piece=5000), symmetrise=True); job.run()"
    )
    patience, kills = 0.2, 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        try:
            assert process.wait(patience) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            patience, kills = patience * 1.3, kills + 1
    assert kills > 0
    _same(tmp_path / "out.npz", _in_memory(tmp_path, *edges, None, symmetrise=True))


def test_two_imports_to_one_archive(tmp_path):
    source = _text(tmp_path / "e.txt", _graph())
    with (
        locked(tmp_path / "out.npz.import"),
        pytest.raises(ImportHeldError, match=r"out\.npz is being imported by this process, since .*: wait for it, or"),
    ):
        _job(tmp_path, [source]).run()


def test_a_half_done_import_of_something_else(tmp_path):
    source = _text(tmp_path / "e.txt", _graph())

    def stop(_):
        raise _KillError

    with pytest.raises(_KillError):
        _job(tmp_path, [source], progress=stop).run()
    with pytest.raises(GraphError, match=r"out\.npz\.import holds a half-done import of other files or options"):
        _job(tmp_path, [source], symmetrise=True).run()
    os.utime(source, ns=(1, 1))
    with pytest.raises(GraphError, match="or a file has changed since: repeat that command, or remove this folder"):
        _job(tmp_path, [source]).run()
    shutil.rmtree(tmp_path / "out.npz.import")
    _job(tmp_path, [source]).run()


def test_what_it_takes_is_said_before(tmp_path, monkeypatch):
    source = _text(tmp_path / "e.txt", _graph())
    told = []
    _job(tmp_path, [source], expected=told.append, buffers=10**6).run()
    (estimate,) = told
    assert estimate.edges == 300
    assert (estimate.temporary_bytes, estimate.archive_bytes) == (300 * 12, 300 * 8)
    assert estimate.native == (native.library() is not None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9000, 4000, 5000))
    with pytest.raises(
        DiskSpaceError, match=r"about 300 edges take about 0\.0 GiB of disk, .* are free: --out on another"
    ):
        _job(tmp_path, [source]).run()
    _same(tmp_path / "out.npz", _in_memory(tmp_path, *_graph(), None))  # the old archive stays


def test_a_full_disk_leaves_what_was_done(tmp_path, monkeypatch):
    source = _text(tmp_path / "e.txt", _graph())
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match=r"No space left on device: '.*out\.npz\.import"):
        _job(tmp_path, [source]).run()
    monkeypatch.undo()
    _job(tmp_path, [source]).run()
    _same(tmp_path / "out.npz", _in_memory(tmp_path, *_graph(), None))


BAD = {
    "line": ("1 2\n# c\n3 x\n", {}, r"e\.txt, line 3, has in column 2 not an integer: '3 x'"),
    "header": ("source target\n1 2\n", {}, r"line 1, .*'source target': --header if this line names the columns"),
    "columns": (
        "1 2 3\n",
        {},
        r"e\.txt has 3 columns, expected 2: say what they are, as --columns source,target,weight",
    ),
    "named": ("1 2 3\n", {"columns": ("source", "target")}, r"has 3 columns, and --columns names 2, source,target"),
    "no column": ("1 2\n", {"source": "sorce"}, r"e\.txt has no column 'sorce': did you mean source"),
    "negative": ("1 2\n\n5 -1\n", {}, r"e\.txt, line 3: '5 -1': target -1 is negative: must be ≥ 0 and < the most"),
    "large": (
        "1 2\n2147483647 1\n",
        {},
        r"line 2: '2147483647 1': source 2147483647 is out of range: .* --ids integers",
    ),
    "small type": (
        "0 1 300\n",
        {"columns": ("source", "target", "w"), "values": {"w": np.dtype(np.int8)}},
        r"has a w that int8",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lines(tmp_path, case):
    content, options, message = BAD[case]
    (tmp_path / "e.txt").write_text(content)
    with pytest.raises(GraphError, match=message):
        _job(tmp_path, [tmp_path / "e.txt"], wanted=Wanted(**options)).run()
    assert not (tmp_path / "out.npz").exists()


def test_a_bad_line_far_in_a_file_is_numbered_rightly(tmp_path):
    rows = [f"{k % 7} {k % 5}\n" for k in range(5000)]
    rows[4321] = "5 oops\n"
    rows[17] = "# c\n"
    (tmp_path / "e.txt").write_text("".join(rows))
    with pytest.raises(GraphError, match=r"e\.txt, line 4,322, has in column 2 not an integer: '5 oops'"):
        _job(tmp_path, [tmp_path / "e.txt"]).run()
    # Once the line is mended the file is another, so nothing is kept.
    assert [path.name for path in tmp_path.iterdir()] == ["e.txt"]


def test_damaged_sources(tmp_path):
    packed = _text(tmp_path / "e.txt.gz", _graph(num_edges=3000))
    packed.write_bytes(packed.read_bytes()[:-600])
    with pytest.raises(GraphError, match=r"e\.txt\.gz is damaged, or cut off, after .* bytes of text .*: get it again"):
        _job(tmp_path, [packed]).run()
    np.savez(tmp_path / "e.npz", edge_index=_graph())
    content = bytearray((tmp_path / "e.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "e.npz").write_bytes(content)
    with pytest.raises(GraphError, match=r"e\.npz is no archive of arrays, or is damaged \(Bad CRC-32"):
        _job(tmp_path, [tmp_path / "e.npz"]).run()
    (tmp_path / "e.npy").write_bytes(b"\x93NUMPY nothing")
    with pytest.raises(GraphError, match=r"e\.npy is no array of np\.save, or is damaged"):
        _job(tmp_path, [tmp_path / "e.npy"]).run()
    with pytest.raises(FileNotFoundError):
        _job(tmp_path, [tmp_path / "absent.txt"]).run()


def test_arguments_that_do_not_fit(tmp_path):
    source = _text(tmp_path / "e.txt", _graph())
    weighted = _text(tmp_path / "w.txt", [*_graph(), range(300)])
    wanted = Wanted(columns=("source", "target", "w"))
    np.save(tmp_path / "w.npy", np.zeros(299))
    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    for sources, options, message in (
        ([source], {"coalesce": "sum"}, 'coalesce="sum" adds the values of equal edges, but these edges have none'),
        ([weighted], {"wanted": wanted, "edge_ids": False}, "edge_data w with edge_ids=False"),
        ([source], {"num_vertices": 10, "wanted": Wanted(ids="integers")}, "num_vertices is given, and so are ids="),
        ([source], {"num_vertices": 10}, r"source 1[0-9] is out of range: must be ≥ 0 and < num_vertices = 10"),
        ([source], {"edge_data": {"w": tmp_path / "w.npy"}}, r"w\.npy: w has 299 rows, and there are .*edges"),
        (
            [source],
            {"vertices": VertexFiles(features=tmp_path / "x.npy"), "num_vertices": 20},
            "have 30 rows, and num_vertices is 20",
        ),
        (
            [source],
            {"vertices": VertexFiles(features=tmp_path / "x.npy"), "wanted": Wanted(ids="integers")},
            "edges are of 20 vertices",
        ),
        (
            [source],
            {"vertices": VertexFiles(masks={"train_mask": tmp_path / "x.npy"})},
            "train_mask is given without labels",
        ),
        ([tmp_path], {}, "is a folder"),
    ):
        with pytest.raises(GraphError, match=message):
            _job(tmp_path, sources, **options).run()
        assert not (tmp_path / "out.npz.import").exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
def test_no_more_memory_than_was_given(tmp_path):
    """A process of its own imports edges that take ten times its buffers."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "e.npy", rng.integers(0, 1_000_000, (6_000_000, 2), dtype=np.int32))
    program = (
        "from dorylax.graph.stream.import_graph import import_graph\n"
        f"import_graph([{str(tmp_path / 'e.npy')!r}], {str(tmp_path / 'out.npz')!r}, memory=2**28, symmetrise=True)\n"
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
    monkeypatch.setattr(transpose, "MAX_EDGE_IDS", 200)
    edges = _graph(num_edges=num_edges // (1 + twice))
    edges = np.concatenate([edges, edges[::-1]], axis=1) if twice else edges
    imported = _job(tmp_path, [_text(tmp_path / "e.txt", edges)], symmetrise=symmetrise).run()
    expected = _in_memory(tmp_path, *edges, None, symmetrise=symmetrise)
    _same(tmp_path / "out.npz", expected)
    assert imported.edge_ids == ("edge_ids" in expected)
    weighted = _text(tmp_path / "w.txt", [*edges, range(edges.shape[1])])
    wanted = Wanted(columns=("source", "target", "w"))
    with contextlib.nullcontext() if imported.edge_ids else pytest.raises(GraphError, match="do not fit int32"):
        _job(tmp_path, [weighted], symmetrise=symmetrise, wanted=wanted).run()
