"""A data set written in another order is the one that memory would have made of it."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import messy_graph
from support.stored import assert_same_data, contents

from dorylax.errors import RunError
from dorylax.graph import Graph, reordering
from dorylax.graph.array_names import ORDER
from dorylax.graph.dataset import Dataset
from dorylax.graph.reordering import write_in_order
from dorylax.graph.stored import open_arrays
from dorylax.graph.validate import GraphError

GIB = 2**30


def data_of(graph: Graph, *, classes: bool = True) -> Dataset:
    rng = np.random.default_rng(1)
    V, E = graph.num_vertices, graph.num_edges
    labels = rng.integers(-1, 3, V) if classes else rng.random(V)
    return Dataset(
        "mine",
        graph,
        rng.random((V, 5)).astype(np.float32),
        labels,
        3 if classes else None,
        train_mask=(labels >= 0) & (np.arange(V) % 3 == 0),
        val_mask=(labels >= 0) & (np.arange(V) % 3 == 1),
        vertex_inputs={"age": rng.integers(0, 9, V)},
        edge_inputs={"weight": rng.random(E)} if graph.edge_data else {},
        original_ids=[f"v{number}" for number in range(V)],  # stay in order of the user's numbers
    )


def graphs() -> dict[str, Graph]:
    messy = messy_graph(30, 120)
    rng = np.random.default_rng(5)
    ends = rng.integers(0, 30, (2, 90))
    weighted = Graph.from_coo(*ends, 30, edge_data={"weight": rng.random(90)})
    return {
        "directed": messy,
        "symmetric": messy.symmetrise(),
        "by source": Graph.from_csr(*messy.host_rows()),
        "weighted": weighted,
        "weighted, symmetric": weighted.symmetrise(),
        "without ids": messy.symmetrise().without_edge_ids(),
        "no edges": Graph.from_coo([], [], 7),
    }


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Small graphs are written in many parts too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reordering, "BLOCK_BYTES", 64)
        patch.setattr(reordering, "_BLOCK", 16)
        patch.setattr(reordering, "_WORKING_BYTES", 256)
        patch.setattr("dorylax.graph.edge_rows.BLOCK_BYTES", 64)
        yield


@pytest.mark.parametrize("kind", graphs())
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), room=st.integers(2000, 20_000))
def test_as_in_memory(tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int, room: int) -> None:
    folder = tmp_path_factory.mktemp("archives")
    data_of(graphs()[kind]).save(folder / "given")
    given_data = Dataset.from_folder(folder / "given")
    rng = np.random.default_rng(seed)
    order = rng.permutation(given_data.graph.num_vertices).astype(np.int32)
    expected = given_data.reorder(order)
    with open_arrays(folder / "given") as archive:
        write_in_order(archive, order, folder / "moved", room=room)
    assert_same_data(Dataset.from_folder(folder / "moved"), expected)
    # Once more, from an archive that is in a memory order itself; and back.
    again = rng.permutation(len(order)).astype(np.int32)
    with open_arrays(folder / "moved") as archive:
        write_in_order(archive, again, folder / "again", room=room)
    assert_same_data(Dataset.from_folder(folder / "again"), expected.reorder(again))
    reordering.reorder_on_disk(folder / "again", folder / "back", order="user", memory=8 * GIB)
    assert_same_data(Dataset.from_folder(folder / "back"), given_data)
    Dataset.from_folder(folder / "again").save(folder / "saved")
    assert_same_data(Dataset.from_folder(folder / "saved"), given_data)
    with open_arrays(folder / "back") as archive:
        assert ORDER not in archive


def test_rows_that_do_not_ascend_keep_their_edge_ids(tmp_path: Path) -> None:
    offsets, targets = np.array([0, 3, 3, 5]), np.array([2, 0, 1, 1, 0], np.int32)
    weight = np.arange(5, dtype=np.float32)
    for name, extra in (("bare", {}), ("weighted", {"edge_weight": weight})):
        np.savez(tmp_path / f"{name}.npz", indptr=offsets, indices=targets, num_self_loops=0, **extra)
        order = np.array([2, 0, 1], np.int32)
        with open_arrays(tmp_path / f"{name}.npz") as archive:
            write_in_order(archive, order, tmp_path / "moved", room=5000)
        expected = Graph.from_folder(tmp_path / f"{name}.npz").reorder(order)
        found = Graph.from_folder(tmp_path / "moved")
        assert contents(tmp_path / "moved")["num_self_loops"] == 0, "a value of others is kept"
        np.testing.assert_array_equal(found.edge_order, expected.edge_order)
        np.testing.assert_array_equal(found.incoming.neighbours, expected.incoming.neighbours)
        assert found.edge_data.keys() == expected.edge_data.keys()
        for values in found.edge_data.values():
            np.testing.assert_array_equal(values, weight)


def test_data_that_change_meanwhile_is_not_reordered(tmp_path: Path) -> None:
    data_of(messy_graph()).save(tmp_path / "in")

    def told(what: str, done: int, total: int) -> None:
        if what == "features":
            with (tmp_path / "in/indices.npy").open("r+b") as file:
                file.write(b"PK")

    with pytest.raises(RunError, match=r"in/indices\.npy has changed since it was loaded \(it was written to\)"):
        reordering.reorder_on_disk(tmp_path / "in", tmp_path / "out", order="user", memory=8 * GIB, on_step=told)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.fixture
def given_file(tmp_path: Path) -> Path:
    data_of(messy_graph(3000, 20_000).symmetrise()).save(tmp_path / "given")
    return tmp_path / "given"


def test_the_order_of_communities(given_file: Path) -> None:
    out, told = given_file.with_name("out"), []
    done = reordering.reorder_on_disk(given_file, out, memory=8 * GIB, on_step=lambda *words: told.append(words))
    found, data = Dataset.from_folder(out), Dataset.from_folder(given_file)
    assert (done.num_vertices, done.num_edges) == (3000, data.graph.num_edges)
    assert found.graph.vertex_ids is not None
    assert_same_data(found, data.reorder(found.graph.vertex_ids))
    assert {path.name for path in given_file.parent.iterdir()} == {"given", "out"}
    assert told[0][0] == "finding communities"
    assert told[-1][1] == told[-1][2]


def test_a_full_disk_loses_nothing(given_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = given_file.with_name("out")
    data_of(messy_graph()).save(out)
    before = contents(out)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dorylax.graph.array_folder.ArrayWriter.write", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        reordering.reorder_on_disk(given_file, out, memory=8 * GIB)
    assert raised.value.filename == str(out)
    assert contents(out).keys() == before.keys()
    assert {path.name for path in given_file.parent.iterdir()} == {"given", "out"}


@pytest.mark.parametrize(
    ("memory", "free", "told"),
    [
        (2**20, None, r"1 MiB of memory are too little: the program itself takes [\d,]+ MiB, give at least [\d,]+ MiB"),
        (8 * GIB, 1000, r"takes 0\.0 GiB, and its disk has 0\.0 GiB left"),
    ],
)
def test_too_little(
    given_file: Path, monkeypatch: pytest.MonkeyPatch, memory: int, free: int | None, told: str
) -> None:
    if free is not None:
        usage = shutil._ntuple_diskusage(1, 1, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises((GraphError, OSError), match=told):
        reordering.reorder_on_disk(given_file, given_file.with_name("out"), memory=memory)
    assert [path.name for path in given_file.parent.iterdir()] == ["given"]


def test_a_room_that_takes_too_many_passes_says_so(tmp_path: Path) -> None:
    data_of(Graph.from_coo([0], [1], 5000)).save(tmp_path / "given")
    order = np.arange(5000, dtype=np.int32)
    with (
        pytest.raises(
            GraphError, match=r"would take [1-5],\d\d\d passes over an array, and at most 1,000 are made: give"
        ),
        open_arrays(tmp_path / "given") as stored,
    ):
        write_in_order(stored, order, tmp_path / "moved", room=4 * 5000 + 4 * 64 + 100)
    assert not (tmp_path / "moved").exists()


def test_arrays_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", indptr=[0, 1], indices=[0], colour=np.zeros(1))
    with pytest.raises(GraphError, match=re.escape("a.npz: has an array colour, of which it is not known whether")):
        reordering.reorder_on_disk(tmp_path / "a.npz", tmp_path / "b", memory=8 * GIB)


_CHILD = """
import sys
from pathlib import Path
from dorylax.graph.reordering import reorder_on_disk
from dorylax.machine import peak_bytes, resident_bytes
begin = resident_bytes()
reorder_on_disk(Path(sys.argv[1]), Path(sys.argv[2]), memory=begin + (200 << 20))
print(peak_bytes() - begin)
"""


def test_memory_stays_within_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of 300 MB within 200 MiB, beside what the program takes."""
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    V, degree = 300_000, 60
    base = np.arange(V)[:, None]
    targets = np.sort((base + rng.integers(-2000, 2000, (V, degree))) % V, axis=1).astype(np.int32)
    np.savez(
        tmp_path / "large.npz",
        indptr=np.arange(V + 1) * degree,
        indices=targets.reshape(-1),
        features=rng.random((V, 190), np.float32),
        labels=rng.integers(0, 5, V),
        directed=np.array(True),
        self_loops=np.array("some"),
    )
    del targets
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "large.npz"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ran.stdout) < 200 << 20
    found = Dataset.from_folder(tmp_path / "out")
    ids = found.graph.vertex_ids
    assert ids is not None
    with open_arrays(tmp_path / "large.npz") as archive:
        np.testing.assert_array_equal(found.features[::1000], archive.fetch("features")[ids[::1000]])
