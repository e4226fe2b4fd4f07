"""METIS: its input, its limits, signals, and its separate process, which gives the same parts."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymetis
import pytest
from support.graphs import ends, messy_graph

from dorylax.graph import Graph
from dorylax.graph.partition import PartitionError
from dorylax.graph.partition.metis import metis, undirected
from dorylax.graph.partition.metis_call import partition_here, rand_is_shared
from dorylax.signals import Terminated, terminations

# Two cliques joined by an edge, one way; vertex 0 has many in-edges.
_IN = [(i, j) for i in range(4) for j in range(i)] + [(i, j) for i in range(4, 8) for j in range(4, i)]
CLIQUES = Graph.from_coo([a for a, _ in _IN] + [7], [b for _, b in _IN] + [0], 8)


@pytest.mark.parametrize("seed", range(3))
def test_cuts_where_few_edges_are(seed: int) -> None:
    parts = metis(CLIQUES, 2, "vertices", seed)
    assert parts.tolist() in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


def test_directions_loops_and_multiplicities_do_not_count() -> None:
    given = ends(CLIQUES)
    sources, targets = (np.concatenate([one, [v] * 3, np.arange(8)]) for one, v in zip(given, (3, 7), strict=True))
    more = Graph.from_coo(np.concatenate([sources, targets]), np.concatenate([targets, sources]), 8)
    simple = Graph.from_coo(np.append(given[0], 3), np.append(given[1], 7), 8)
    np.testing.assert_array_equal(metis(more, 3, "vertices", 0), metis(simple, 3, "vertices", 0))


RING = Graph.from_coo(range(64), [*range(1, 64), 0], 64)
MULTIPLE = Graph.from_coo([0] * 120, [1] * 120, 8)


@pytest.mark.parametrize(
    ("graph", "found"), [(RING, "127 entries.*has 128"), (MULTIPLE, "127 vertices and edges.*has 128")]
)
def test_a_graph_too_large_for_its_indices(monkeypatch: pytest.MonkeyPatch, graph: Graph, found: str) -> None:
    monkeypatch.setattr("dorylax.graph.partition.metis._index_type", lambda: np.dtype(np.int8))
    with pytest.raises(PartitionError, match=rf"8-bit indices and holds up to {found}: use the method 'ldg'"):
        metis(graph, 2, "edges", 0)


@pytest.fixture(params=["fails", "returns", "has it pending"])
def terminated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """METIS has caught SIGTERM, once."""
    part_graph, calls = pymetis.part_graph, itertools.count()

    def caught(*args: Any, **options: Any) -> Any:
        if next(calls):
            return part_graph(*args, **options)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # as a jump out of a handler leaves it
        if request.param == "fails":
            raise RuntimeError("Caught an unknown exception!")
        if request.param == "has it pending":
            signal.raise_signal(signal.SIGTERM)
        return part_graph(2, adjacency=pymetis.CSRAdjacency([0, 1, 2], [1, 0]))

    monkeypatch.setattr("pymetis.part_graph", caught)


@pytest.mark.usefixtures("terminated")
def test_sigterm_that_metis_catches_ends_the_command() -> None:
    with terminations(), pytest.raises(Terminated):
        metis(CLIQUES, 2, "vertices", 0)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.usefixtures("terminated")
def test_who_hears_sigterm_and_goes_on_gets_the_parts() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        found = metis(CLIQUES, 2, "vertices", 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
    np.testing.assert_array_equal(found, metis(CLIQUES, 2, "vertices", 0))


def test_metis_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("METIS_ERROR_MEMORY")

    monkeypatch.setattr("pymetis.part_graph", fail)
    with pytest.raises(PartitionError, match=r"26 entries here \(METIS_ERROR_MEMORY\): use the method 'ldg'"):
        metis(CLIQUES, 2, "vertices", 0)


DIRECTED = messy_graph(20, 80)
_BOTH = np.concatenate(ends(DIRECTED)), np.concatenate(ends(DIRECTED)[::-1])


@pytest.mark.parametrize("graph", [DIRECTED, Graph.from_coo(*_BOTH, 20)], ids=["directed", "symmetric, multiple edges"])
def test_the_undirected_view_has_each_pair_once_and_no_loops(graph: Graph) -> None:
    near: list[set[int]] = [set() for _ in range(20)]
    for u, v in zip(*(one.tolist() for one in _BOTH), strict=True):
        if u != v:
            near[u].add(v)
    offsets, neighbours = undirected(graph)
    assert [row.tolist() for row in np.split(neighbours, offsets[1:-1])] == [sorted(row) for row in near]


_RANDOM = np.random.default_rng(0)
GRAPH = Graph.from_coo(_RANDOM.integers(0, 2000, 8000), _RANDOM.integers(0, 2000, 8000), 2000)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))


@pytest.fixture
def others_draw() -> Iterator[None]:
    over = threading.Event()

    def draw() -> None:
        library = ctypes.CDLL(None)
        while not over.is_set():
            library.rand()

    thread = threading.Thread(target=draw)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.parametrize("num_parts", [2, 9], ids=["bisection", "k-way"])
@pytest.mark.parametrize("balance", ["vertices", "edges"])
def test_in_a_process_of_its_own_parts_are_the_same_whoever_else_draws(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, num_parts: int, balance: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dorylax.graph.partition.metis.partition_apart", partition_here)
        here = metis(GRAPH, num_parts, balance, 3)
    assert not rand_is_shared()
    for fixture in ("connected", "others_draw"):
        request.getfixturevalue(fixture)
    assert rand_is_shared()
    apart = metis(GRAPH, num_parts, balance, 3)
    assert apart.dtype == here.dtype
    np.testing.assert_array_equal(apart, here)


@pytest.mark.parametrize(
    ("program", "said"),
    [("import os; os._exit(3)", "its process ended with exit code 3"), ("raise MemoryError('no room')", "no room")],
)
def test_what_goes_wrong_there_is_said(
    connected: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr("dorylax.graph.partition.metis_call.__file__", str(tmp_path / "program.py"))
    with pytest.raises(PartitionError, match=rf"METIS cannot partition .* entries here \(.*{said}"):
        metis(GRAPH, 2, "vertices", 3)


@pytest.mark.parametrize("receiver", ["process", "parent"])
def test_sigterm_during_k_way(monkeypatch: pytest.MonkeyPatch, receiver: str) -> None:
    """METIS crashed: it read beyond its arrays after bisections that SIGTERM had left unfinished."""
    wanted = metis(GRAPH, 9, "vertices", 3)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))
        pid = started[0].pid if receiver == "process" else os.getpid()
        threading.Timer(0.02, os.kill, (pid, signal.SIGTERM)).start()
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    if receiver == "process":
        np.testing.assert_array_equal(metis(GRAPH, 9, "vertices", 3), wanted)
    else:
        with terminations(), pytest.raises(Terminated):
            metis(GRAPH, 9, "vertices", 3)
        assert started[0].returncode == -signal.SIGKILL
