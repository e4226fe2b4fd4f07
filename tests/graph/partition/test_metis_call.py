"""METIS here and in a process of its own: the same parts, whoever else draws."""

from __future__ import annotations

import ctypes
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
import pytest

from dorylax.graph import Graph
from dorylax.graph.partition import PartitionError
from dorylax.graph.partition.metis import metis
from dorylax.graph.partition.metis_call import partition_here, rand_is_shared
from dorylax.terminal.terminations import Terminated, terminations

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
