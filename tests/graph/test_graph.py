"""One class for users: whatever makes or changes a graph gives a `Graph`, and says so to `help()`."""

from __future__ import annotations

import inspect
import pickle

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from dorylax.graph import Graph

PAIRS = np.array([[2, 0, 0, 1], [0, 1, 1, 1]])
MADE = {
    "from_coo": lambda: Graph.from_coo(*PAIRS),
    "from_csr": lambda: Graph.from_csr([0, 1, 4, 4], [2, 0, 0, 1]),
    "from_edge_index": lambda: Graph.from_edge_index(PAIRS),
    "from_scipy": lambda: Graph.from_scipy(sp.coo_array((np.ones(4), PAIRS), shape=(3, 3))),
}
CHANGES = {
    "coalesce": (),
    "with_self_loops": (),
    "without_self_loops": (),
    "symmetrise": (),
    "without_edge_ids": (),
    "reorder": ([2, 0, 1],),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("made", MADE)
def test_whatever_makes_or_changes_a_graph_gives_a_graph(made, change):
    graph = MADE[made]()
    if made == "from_scipy" and change == "with_self_loops":
        graph = graph.without_edge_ids()  # else loops need weights
    changed = getattr(graph, change)(*CHANGES[change])
    for found in (graph, changed, pickle.loads(pickle.dumps(changed)), jax.tree.map(lambda leaf: leaf, changed)):
        assert type(found) is Graph
    again = pickle.loads(pickle.dumps(changed))
    np.testing.assert_array_equal(again.incoming.neighbours, changed.incoming.neighbours)
    assert repr(again) == repr(changed)


@pytest.mark.parametrize("name", [n for n in dir(Graph) if n[0] != "_" and hasattr(getattr(Graph, n), "__code__")])
def test_methods_are_documented_with_their_arguments(name):
    assert inspect.getdoc(getattr(Graph, name)), name
    kinds = {parameter.kind for parameter in inspect.signature(getattr(Graph, name)).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, name
