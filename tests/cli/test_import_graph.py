"""`dorylax import`: from files to an archive that trains, and what is said of wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.graph import Graph
from dorylax.graph.stream.archive_writer import ArrayWriter
from dorylax.graph.stream.import_graph import LEAST_MEMORY


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("source,target,w,when\n0,1,2.5,monday\n2,1,1.5,\n0,1,0.5,friday\n")
    return path


def test_an_archive_and_a_line(dorylax, tmp_path: Path, edges: Path) -> None:
    out = tmp_path / "mine.npz"
    words = ("--header", "--values", "w:float64", "--coalesce", "sum", "--memory", "4GiB")
    code, said, err = dorylax("import", str(edges), "--out", str(out), *words)
    size = f"{out.stat().st_size / 1e3:.1f} kB"
    assert (code, said) == (0, f"{out}: 3 vertices, 2 edges (directed), of 3 that were read; {size}\n")
    assert err.startswith("about 3 edges; disk: about ")
    graph = Graph.from_npz(out)
    assert graph.edge_data["w"].tolist() == [3.0, 1.5]
    assert graph.edge_data["w"].dtype == np.float64


def test_json_and_vertices(dorylax, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("ann bob\nbob cem\n")
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    np.save(tmp_path / "y.npy", np.array([0, 1, 1]))
    out = tmp_path / "mine.npz"
    words = (
        "--ids",
        "names",
        "--symmetrise",
        *("--features", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")),
    )
    code, said, err = dorylax(
        "import", str(tmp_path / "e.txt"), "--out", str(out), "--memory", "512MiB", *words, "--json"
    )
    assert (code, err) == (0, "")
    content = json.loads(said)
    assert content.pop("estimate")["edges"] == 2
    assert content == {
        **{"schema": 1, "out": str(out), "num_vertices": 3, "num_edges": 4, "edges_read": 2},
        **{"symmetric": True, "self_loops": "none", "edge_ids": True},
    }
    assert dorylax("train", "--data", str(out), "--epochs", "1", "--no-save").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--memory is missing: say how much the import may take, as --memory 4GiB"),
        (
            ("--memory", "much"),
            "--memory: expected an amount of memory such as 4GiB, 500MB or 1073741824 (bytes), got 'much'",
        ),
        (("--memory", "1MB"), "an import needs at least 0.2 GiB of memory, got 0.0 GiB"),
        (("--memory", "4GiB", "--separator", "ab"), "--separator takes one ASCII character, got 'ab'"),
        (("--memory", "4GiB", "--values", "w:text"), "--values w:text: 'text' is no type of numbers: float32, float64"),
        (("--memory", "4GiB", "--edge-data", "w"), "--edge-data takes NAME=FILE, got 'w'"),
        (("--memory", "4GiB", "--out", "mine.txt"), "the archive's name must end in .npz, got 'mine.txt'"),
        (
            ("--memory", "4GiB"),
            "edges.csv has 4 columns, expected 2: say what they are, as --columns source,target,weight",
        ),
    ],
)
def test_wrong_options(dorylax, tmp_path: Path, edges: Path, words: tuple[str, ...], message: str) -> None:
    code, out, err = dorylax("import", str(edges), "--out", str(tmp_path / "mine.npz"), *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv"]


def test_nothing_to_import(dorylax, tmp_path: Path) -> None:
    code, _, err = dorylax("import", "--out", str(tmp_path / "mine.npz"), "--memory", "1GiB")
    assert (code, err) == (2, "error: there is nothing to import: name at least one file of edges\n")
    assert LEAST_MEMORY < 2**30


def test_interrupted(dorylax, tmp_path: Path, edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "import",
        str(edges),
        "--out",
        str(tmp_path / "mine.npz"),
        *("--header", "--values", "w", "--memory", "512MiB"),
    )

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrayWriter, "write", stop)
        code, said, err = dorylax(*words)
    assert (code, said) == (130, ""), err
    assert err.endswith("interrupted: the same command goes on\n")
    assert dorylax(*words).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"edges.csv", "mine.npz"}
