"""Shards cut one at a time hold what shards held that were cut out of the whole laid-out graph, to the byte."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.graphs import messy_graph
from support.stored import contents

from dorylax.graph import Graph
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.partition import lay_out, partition
from dorylax.graph.rows import SPAN
from dorylax.pipeline.shard_writing import write_shards

# Of all arrays in the files that were written when the graph was laid out as a whole first.
DIGESTS = {
    ("directed", "random"): "e03bd5246d3c66c3",
    ("directed", "range"): "47a6dca3948e0d6e",
    ("directed by source", "random"): "c82d4f6dd0c98232",
    ("directed by source", "range"): "e4ebb40b1f5b7382",
    ("directed by target", "random"): "e7ffd8431586e6bb",
    ("directed by target", "range"): "a97d0ad3897d3d8d",
    ("directed reordered", "random"): "b420ff5538eab317",
    ("directed reordered", "range"): "22f7655189354ede",
    ("directed reordered by source", "random"): "a45638af2a01a44b",
    ("directed reordered by source", "range"): "68f8df5aef79c5a4",
    ("directed reordered by target", "random"): "8e905337ea3a2f63",
    ("directed reordered by target", "range"): "e194295571ed1d7d",
    ("symmetric", "random"): "ab1cae5a59bdb130",
    ("symmetric", "range"): "4c8224f11bd36082",
    ("symmetric by source", "random"): "654b14dd29eb241f",
    ("symmetric by source", "range"): "26ae94f9372d6933",
    ("symmetric by target", "random"): "b696b4de884812ec",
    ("symmetric by target", "range"): "3f4013ac842ca823",
    ("symmetric reordered", "random"): "bf7a309830111725",
    ("symmetric reordered", "range"): "0ae5cf0e442bd8f5",
    ("symmetric reordered by source", "random"): "52d9a12a83767e14",
    ("symmetric reordered by source", "range"): "75ff150025bf9c9f",
    ("symmetric reordered by target", "random"): "dc259a441330dc7d",
    ("symmetric reordered by target", "range"): "157d0f12f67b1a64",
}


def data_of(kind: str) -> Dataset:
    rng = np.random.default_rng(3)
    graph = messy_graph(60, 400, seed=1)
    if "symmetric" in kind:
        graph = graph.symmetrise()
    if "by" in kind:  # what comes of `from_coo` has another order of edges
        graph = Graph(*graph.host_rows(), symmetric=graph.symmetric, placed="source" if "source" in kind else "target")
    edges = {"length": rng.random(graph.num_edges).astype(np.float32)}
    masks = rng.integers(0, 3, 60) == np.arange(3)[:, None]
    features, labels = rng.random((60, 5)).astype(np.float32), rng.integers(0, 3, 60).astype(np.int32)
    ages = {"age": rng.integers(0, 9, 60).astype(np.int32)}
    data = Dataset("cut", graph, features, labels, 3, *masks, vertex_inputs=ages, edge_inputs=edges)
    return data.reorder(np.random.default_rng(2).permutation(60)) if "reordered" in kind else data


@pytest.mark.parametrize(("kind", "method"), DIGESTS)
def test_files_hold_the_same_bytes_as_ever(tmp_path: Path, kind: str, method: str) -> None:
    data = data_of(kind)
    layout = lay_out(data.graph, partition(data.graph, 3, method=method), 4)
    digest = hashlib.sha256()
    for ids in (False, True):
        folder = tmp_path / str(ids)
        folder.mkdir()
        for entry in write_shards(folder, data, layout, ids=ids).summary.shards:
            arrays = contents(folder / entry.file)
            # The identity says, among other things, whether features happened to be aligned.
            for name in sorted(set(arrays) - {"identity"}):
                digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
                digest.update(arrays[name].tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[kind, method]


def test_no_more_is_held_than_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 million edges no copy, but an eighth of them at a time."""
    monkeypatch.setattr("dorylax.graph.reorder.SPAN", 1 << 16)  # as many at a time on each thread
    data = load("communities", num_vertices=4000, num_edges=16_000_000, num_features=500, num_classes=4)
    layout = lay_out(data.graph, partition(data.graph, 8, method="range"), 4)
    whole = 4 * data.graph.num_edges + data.features.nbytes
    tracemalloc.start()
    try:
        write_shards(tmp_path, data, layout, ids=False, digests=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole / 8 < peak < whole / 8 + 28 * SPAN
