"""Graph operators, bound as primitives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.ops.primitives.bilinear import edge_dot, gather_weighted
from dorylax.ops.primitives.counts import degrees, self_loops
from dorylax.ops.primitives.extremum import collect_extremum, gather_extremum, select_sum
from dorylax.ops.primitives.linear import collect, expand, gather_sum
from dorylax.ops.primitives.softmax import edge_softmax
from dorylax.ops.primitives.structure import Structure
from dorylax.program.rows.check import infer
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, GraphArray, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()
X, A = (V, ("n", 2, 3)), (E, ("e", 2, 3))
S, L = (E, ("e", 2)), (V, ("n", 2))


def _check(rows: Any, fun: Any, *dense: Any, arrays: Any = None) -> Any:
    n, e = jax.export.symbolic_shape("n, e")
    sizes = {"n": n, "e": e, "2*n": 2 * n}
    shapes = [tuple(sizes.get(d, d) for d in shape) for _, shape in dense]
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    offsets, entries = jax.ShapeDtypeStruct((n + 1, 2), jnp.uint32), jax.ShapeDtypeStruct((e,), jnp.int32)
    count = len(specs)
    closed = jax.make_jaxpr(lambda *v: fun(*v[:count], Structure(*v[count:])))(
        *specs, offsets, entries, offsets, entries, entries
    )
    given = arrays or [GraphArray()] * 5
    found = infer(closed.jaxpr, [*(kind for kind, _ in dense), *given])
    return [found[var] for var in closed.jaxpr.outvars]


@pytest.mark.parametrize(
    ("fun", "dense", "results"),
    [
        (lambda x, s: gather_sum(x, s, direction="in"), [X], [V]),
        (lambda x, w, s: gather_weighted(x, w, s, direction="out"), [X, S], [V]),
        (lambda x, s: gather_extremum(x, s, reduce="max"), [X], [V]),
        (lambda o, p, x, s: select_sum(o, p, x, s, direction="in"), [X, X, X], [V]),
        (lambda a, s: collect(a, s, direction="in"), [A], [V]),
        (lambda a, s: collect_extremum(a, s, reduce="min"), [A], [V]),
        (lambda x, s: expand(x, s, direction="out"), [X], [E]),
        (edge_dot, [X, X], [E]),
        (edge_softmax, [S, L], [E, V]),
        (lambda s: degrees(s, direction="in"), [], [V]),
        (self_loops, [], [V]),
    ],
)
def test_signatures(rows: Any, fun: Any, dense: Any, results: Any):
    assert _check(rows, fun, *dense) == results
    for k in range(len(dense)):
        wrong = [A if (entry is X) else X if entry is A else (L if entry is S else S) for entry in dense[k : k + 1]]
        with pytest.raises(RowError, match="on axis 0"):
            _check(rows, fun, *dense[:k], *wrong, *dense[k + 1 :])


def test_folded_rows(rows: Any):
    with pytest.raises(RowError, match="on axis 0"):
        _check(rows, lambda x, s: gather_sum(x, s, direction="in"), (Rows("vertex", 0, 2), ("2*n", 2, 3)))


def test_structure_that_is_no_input(rows: Any):
    mixed = [GraphArray(), E, GraphArray(), E, E]
    with pytest.raises(RowError, match="a graph that is not the model's input"):
        _check(rows, lambda x, s: gather_sum(x, s, direction="in"), X, arrays=mixed)


def test_without_edge_ids(rows: Any):
    def fun(x: Any, s: Any) -> Any:
        return gather_sum(x, s._replace(out_edges=jnp.zeros((0,), jnp.int32)), direction="in")

    assert _check(rows, fun, X) == [V]


def test_inside_a_loop(rows: Any):
    def fun(x: Any, s: Any) -> Any:
        return lax.scan(lambda h, _: (gather_sum(h, s, direction="in"), None), x, None, length=2)[0]

    with pytest.raises(RowError, match="a graph operator inside scan"):
        _check(rows, fun, X)
    assert _check(rows, jax.jit(lambda x, s: gather_sum(x, s, direction="in")), X) == [V]
