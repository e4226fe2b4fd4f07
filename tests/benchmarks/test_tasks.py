"""The graphs that both sides of the benchmark of tasks learn from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from tasks import _graph

from dorylax.graph.rows import all_rows


def test_graphs_hold_each_edge_once() -> None:
    """GCNs of dorylax and of PyTorch Geometric are the same function on these alone."""
    rng = np.random.default_rng(0)
    for number in range(60):
        offsets, sources = _graph(number % 3, rng).host_rows()
        edges = np.stack([sources, all_rows(offsets)])
        assert np.unique(edges, axis=1).shape == edges.shape
