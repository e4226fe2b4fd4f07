"""`dorylax import`: from files to an archive that trains, and what is said of wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.stored import contents

from dorylax.graph.array_folder import ArrayWriter, size_on_disk
from dorylax.graph.from_files.import_graph import LEAST_MEMORY
from dorylax.graph.graph import Graph


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text("source,target,w,when\n0,1,2.5,monday\n2,1,1.5,\n0,1,0.5,friday\n")
    return path


def test_an_archive_and_a_line(dorylax, tmp_path: Path, edges: Path) -> None:
    out = tmp_path / "mine"
    words = ("--header", "--values", "w:float64", "--coalesce", "sum", "--memory", "4GiB")
    code, said, err = dorylax("import", str(edges), "--out", str(out), *words)
    size = f"{size_on_disk(out) / 1e3:.1f} kB"
    assert (code, said) == (0, f"{out}: 3 vertices, 2 edges (directed), of 3 that were read; {size}\n")
    detected, estimate = err.splitlines()
    assert detected.startswith(
        f"{edges}: text, fields separated by ',' (--separator), header 'source,target,w,when' (--header)"
    )
    assert estimate.startswith("about 3 edges; disk: about ")
    graph = Graph.from_folder(out)
    assert graph.edge_data["w"].tolist() == [3.0, 1.5]
    assert graph.edge_data["w"].dtype == np.float64
    again = dorylax("import", str(edges), "--out", str(out), "--header", "--values", "when:", "--memory", "4GiB")
    assert (
        again.err == f"error: --out {out} holds a data set: choose another folder, or add --overwrite to replace it\n"
    )
    edges.write_text("source,target\n0,1\n")
    assert dorylax("import", str(edges), "--out", str(out), "--memory", "4GiB", "--overwrite").code == 0
    assert Graph.from_folder(out).num_edges == 1


def test_json_and_vertices(dorylax, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("ann bob\nbob cem\n")
    (tmp_path / "v.csv").write_text("name,x,y,topic\ncem,1,2,tea\nann,3,4,rum\nbob,5,6,tea\n")
    out, table = tmp_path / "mine", tmp_path / "v.csv"
    words = ("--symmetrise", "--ids", "names", "--key", "name", "--features", str(table), "--labels", f"{table}:topic")
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
    found = contents(out)
    assert found["features"].tolist() == [[3, 4], [5, 6], [1, 2]]
    assert found["class_names"].tolist() == [b"rum", b"tea"]
    assert dorylax("train", "--data", str(out), "--epochs", "1", "--no-save").code == 0


def test_nothing_to_import(dorylax, tmp_path: Path) -> None:
    code, _, err = dorylax("import", "--out", str(tmp_path / "mine"), "--memory", "1GiB")
    assert (code, err) == (2, "error: there is nothing to import: name at least one file of edges\n")
    assert LEAST_MEMORY < 2**30


def test_interrupted(dorylax, tmp_path: Path, edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "import",
        str(edges),
        "--out",
        str(tmp_path / "mine"),
        *("--header", "--values", "w", "--memory", "512MiB"),
    )

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrayWriter, "write", stop)
        code, said, err = dorylax(*words)
    assert (code, said) == (130, ""), err
    assert err.endswith("interrupted: the same command starts again\n")
    assert dorylax(*words).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"edges.csv", "mine"}
