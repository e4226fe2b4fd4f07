"""`dorylax partition` on the tiny built-in graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.array_folder import size_on_disk
from dorylax.graph.datasets import load
from dorylax.graph.partition import Partition, partition, report
from dorylax.observers.progress import data_size

TINY = ("partition", "--data", "communities", "--set", "data.size=tiny")


def test_table(dorylax, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    code, out, err = dorylax(*TINY, "--servers", "3", "--method", "range", "--intervals", "4", "--out", str(folder))
    assert (code, err) == (0, "")
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0] == "communities on 3 servers: range, even in vertices"
    assert [line.split()[1] for line in lines[4:7]] == ["0", "1", "2"]
    graph = load("communities", size="tiny").graph
    found = report(graph, partition(graph, 3, method="range"))
    cells = [cell.strip() for cell in lines[4].split("│")[1:-1]]
    assert cells[:5] == [
        "0",
        *(f"{column[0]:,}" for column in (found.vertices, found.edges, found.ghosts_in, found.ghosts_out)),
    ]
    assert any(line.startswith(f"cut edges: {found.cut_edges:,} of 10,000 (") for line in lines)
    assert any(line.startswith("intervals: 4 per server, of 83 … 84 vertices; ") for line in lines)
    assert lines[-2] == "rows exchanged per layer, forward and backward: 16, 4 float32 numbers"
    sizes = [size_on_disk(folder / f"server-{server}") for server in range(3)]
    assert lines[-1] == f"saved in {folder}, shards of {', '.join(map(data_size, sizes))}"


def test_json_and_saved(dorylax, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    options = ("--servers", "2", "--balance", "edges", "--method", "ldg", "--seed", "7", "--out", str(folder), "--json")
    code, out, _ = dorylax(*TINY, *options, "--set", "model.hidden_features=100", "--set", "model.num_layers=3")
    assert code == 0
    content = json.loads(out)
    assert (content["schema"], content["widths"], content["folder"]) == (1, [100, 100, 4], str(folder))
    graph = load("communities", size="tiny").graph
    made = partition(graph, 2, method="ldg", balance="edges", seed=7)
    found = report(graph, made, forward=[400, 400, 16], backward=[400, 400, 16])
    assert found.to_dict().items() <= content.items()
    read = Partition.load(folder)
    read.check(graph)
    np.testing.assert_array_equal(read.parts, made.parts)


@pytest.mark.parametrize(
    ("options", "widths"),
    [(("--set", "model.jk=concat"), [16, 16]), (("--widths", "7, 8", "--set", "model.name=gat"), [7, 8])],
)
def test_widths(dorylax, options: tuple[str, ...], widths: list[int]) -> None:
    content = json.loads(dorylax(*TINY, "--servers", "2", "--method", "random", "--json", *options).out)
    assert content["widths"] == widths
    assert content["received_bytes"][0] == 8 * sum(widths) * content["ghosts_in"][0]


def test_a_folder_with_something_else_is_refused_before_anything(dorylax, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("dorylax.trainer.from_config.prepare_data", None)
    code, _, err = dorylax(*TINY, "--servers", "2", "--out", str(tmp_path))
    assert code == 2
    assert "is a folder that holds notes.txt, which dorylax did not write" in err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
