"""Temporary folders of `dorylax import` and `reorder`: one process at a time, and leftovers are removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dorylax.graph import Graph
from dorylax.graph.datasets import load
from dorylax.store.durable import work_folder


class Case(NamedTuple):
    words: tuple[str, ...]
    killed_in: str


CASES = {
    "import": Case(
        ("import", "edges.txt", "--out", "out", "--overwrite", "--memory", "1GiB"),
        "dorylax.graph.array_folder:ArrayWriter.write",
    ),
    "reorder": Case(("reorder", "given", "--out", "out"), "dorylax.graph.array_folder:ArrayWriter.write"),
}

_KILLED = """
import importlib, os, sys
from dorylax.cli import main
module, _, name = sys.argv.pop(1).partition(":")
kind, _, method = name.partition(".")
setattr(getattr(importlib.import_module(module), kind), method, lambda *_, **__: os._exit(9))
main(sys.argv[1:])
"""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.chdir(tmp_path)
    Path("edges.txt").write_text("0 1\n1 2\n2 0\n")
    load("communities", size="tiny").save("given")
    Graph.from_coo([0], [1]).save("out")
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("chapter 1")
    return CASES[request.param]


def test_files_of_a_killed_process_are_removed(dorylax, case: Case) -> None:
    before = {path.name for path in Path().iterdir()}
    child = subprocess.run([sys.executable, "-c", _KILLED, case.killed_in, *case.words], check=False)
    assert child.returncode == 9
    left = list(Path().glob(".out.dorylax-*"))
    assert any(list(folder.iterdir()) for folder in left)
    for folder in left:
        (folder / "link").symlink_to(Path("mine").absolute())  # is not followed
    assert dorylax(*case.words).code == 0
    assert {path.name for path in Path().iterdir()} == before
    assert Path("mine/thesis.tex").read_text() == "chapter 1"
    assert Graph.from_folder("out").num_vertices > 2


def test_two_processes_do_not_write_the_same_folder(dorylax, case: Case) -> None:
    before = Graph.from_folder("out").num_vertices
    with work_folder(Path("out")):
        code, out, err = dorylax(*case.words)
    assert (code, out) == (1, "")
    assert err.endswith("out is being written by another process: wait for it, or give another --out\n")
    assert err.count("\n") == 1
    assert Graph.from_folder("out").num_vertices == before
    assert not list(Path().glob(".out.dorylax-*"))
