"""Matrix products, convolutions, and graph operators, bound as primitives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dorylax.ops.primitives.extremum import collect_extremum, gather_extremum, select_sum
from dorylax.ops.primitives.linear import collect, degrees, edge_dot, expand, gather_sum, gather_weighted, self_loops
from dorylax.ops.primitives.softmax import edge_softmax
from dorylax.ops.primitives.structure import Structure
from dorylax.program.rows.check import infer
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.types import Free, GraphArray, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()


def test_rows_and_parameters(rows: Any):
    x, p = (V, ("n", 6)), (FREE, (6, 3))
    assert rows.results(lambda x, p: x @ p, x, p) == [V]
    assert rows.results(lambda x, p: p.T @ x.T, x, p) == [Rows("vertex", 1)]
    assert rows.results(lambda x, p: jnp.einsum("nai,ij->ajn", x, p), (V, ("n", 2, 6)), p) == [Rows("vertex", 2)]
    assert rows.results(
        lambda x, p: jnp.einsum("hni,hij->hnj", x, p), (Rows("vertex", 1), (2, "n", 6)), (FREE, (2, 6, 3))
    ) == [Rows("vertex", 1)]
    assert rows.results(lambda x, p: x @ p, (Rows("vertex", 0, 2), ("2*n", 6)), p) == [Rows("vertex", 0, 2)]


def test_rows_and_rows(rows: Any):
    both = (V, ("n", 6)), (V, ("n", 6))
    assert rows.results(lambda x, y: jnp.einsum("ni,nj->nij", x, y), *both) == [V]
    assert rows.results(lambda x, y: x.T @ y, *both) == [SUM]
    assert rows.results(lambda x, y: jnp.einsum("ni,ni->", x, y), *both) == [SUM]
    with pytest.raises(RowError, match="product of every vertex with every other"):
        rows.results(lambda x, y: x @ y.T, *both)


def test_sums_and_parameters(rows: Any):
    assert rows.results(lambda s, p: s @ p, (SUM, (2, 6)), (FREE, (6, 3))) == [SUM]
    for other in ((SUM, (6, 3)), (Rows("vertex", 1), (6, "n"))):
        with pytest.raises(RowError):
            rows.results(lambda s, p: s @ p, (SUM, (2, 6)), other)


def test_convolutions(rows: Any):
    def conv(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1,), "SAME")

    x, kernel = (V, ("n", 2, 6)), (FREE, (4, 2, 3))
    assert rows.results(conv, x, kernel) == [V]
    assert rows.results(conv, (FREE, (5, 2, 6)), (V, ("n", 2, 3))) == [Rows("vertex", 1)]
    assert rows.results(conv, (SUM, (5, 2, 6)), kernel) == [SUM]
    with pytest.raises(RowError, match="convolution over the vertex axis"):
        rows.results(conv, (Rows("vertex", 2), (1, 2, "n")), kernel)


def test_gradient_of_a_kernel(rows: Any):
    for groups in (1, 2):

        def pullback(x: Any, k: Any, g: Any, groups: int = groups) -> Any:
            def conv(k: Any) -> Any:
                return lax.conv_general_dilated(x, k, (1,), "SAME", feature_group_count=groups)

            return jax.vjp(conv, k)[1](g)[0]

        inputs = (V, ("n", 2, 6)), (FREE, (4, 2 // groups, 3)), (V, ("n", 4, 6))
        assert rows.results(pullback, *inputs) == [SUM]


GX, A = (V, ("n", 2, 3)), (E, ("e", 2, 3))
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
        (lambda x, s: gather_sum(x, s, direction="in"), [GX], [V]),
        (lambda x, w, s: gather_weighted(x, w, s, direction="out"), [GX, S], [V]),
        (lambda x, s: gather_extremum(x, s, reduce="max"), [GX], [V]),
        (lambda o, p, x, s: select_sum(o, p, x, s, direction="in"), [GX, GX, GX], [V]),
        (lambda a, s: collect(a, s, direction="in"), [A], [V]),
        (lambda a, s: collect_extremum(a, s, reduce="min"), [A], [V]),
        (lambda x, s: expand(x, s, direction="out"), [GX], [E]),
        (edge_dot, [GX, GX], [E]),
        (edge_softmax, [S, L], [E, V]),
        (lambda s: degrees(s, direction="in"), [], [V]),
        (self_loops, [], [V]),
    ],
)
def test_signatures(rows: Any, fun: Any, dense: Any, results: Any):
    assert _check(rows, fun, *dense) == results
    for k in range(len(dense)):
        wrong = [A if (entry is GX) else GX if entry is A else (L if entry is S else S) for entry in dense[k : k + 1]]
        with pytest.raises(RowError, match="on axis 0"):
            _check(rows, fun, *dense[:k], *wrong, *dense[k + 1 :])


def test_folded_rows(rows: Any):
    with pytest.raises(RowError, match="on axis 0"):
        _check(rows, lambda x, s: gather_sum(x, s, direction="in"), (Rows("vertex", 0, 2), ("2*n", 2, 3)))


def test_structure_that_is_no_input(rows: Any):
    mixed = [GraphArray(), E, GraphArray(), E, E]
    with pytest.raises(RowError, match="a graph that is not the model's input"):
        _check(rows, lambda x, s: gather_sum(x, s, direction="in"), GX, arrays=mixed)


def test_without_edge_ids(rows: Any):
    def fun(x: Any, s: Any) -> Any:
        return gather_sum(x, s._replace(out_edges=jnp.zeros((0,), jnp.int32)), direction="in")

    assert _check(rows, fun, GX) == [V]


def test_inside_a_loop(rows: Any):
    def fun(x: Any, s: Any) -> Any:
        return lax.scan(lambda h, _: (gather_sum(h, s, direction="in"), None), x, None, length=2)[0]

    with pytest.raises(RowError, match="a graph operator inside scan"):
        _check(rows, fun, GX)
    assert _check(rows, jax.jit(lambda x, s: gather_sum(x, s, direction="in")), GX) == [V]
