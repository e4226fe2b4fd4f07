"""Operations of graph operators and bytes that they read, against numbers counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from dorylax.graph.graph import Graph
from dorylax.jax_internals import JaxprEqn, make_jaxpr_of
from dorylax.ops.primitives import attention, bilinear, counts, extremum, linear, softmax
from dorylax.ops.primitives.attention import ATTENTION
from dorylax.ops.primitives.operator import Operator
from dorylax.ops.primitives.softmax import SOFTMAX
from dorylax.ops.primitives.structure import Structure, structure_of
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.graph_operators import gathered_bytes


def array(*shape: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


V, E, H, F = 5, 12, 2, 3
WHOLE = Graph.from_coo(np.arange(E) % V, (np.arange(E) * 2) % V, num_vertices=V)
VERTEX, EDGE, SCORES = array(V, H, F), array(E, H, F), array(E, H)


def fused(operator: Operator) -> Any:
    """A fused operator of attention, as a function of the structure and its operands."""
    return lambda structure, *dense: operator(*dense, structure, negative_slope=0.2)


def operands_of(operator: Operator, rows: Any) -> list[tuple[Any, ...]]:
    """Their shapes, all per vertex."""
    return [(rows, H, F)[: operand.axes] for operand in operator.operands]


FUSED = [attention.attention, attention.attention_saving, attention.attention_tangent, attention.attention_backward]


@pytest.mark.parametrize(
    ("operator", "operands", "expected"),
    [
        (lambda s, x: linear.gather_sum(x, s, direction="out"), [VERTEX], E * 6),
        (lambda s, x: linear.expand(x, s, direction="in"), [VERTEX], 0),
        (lambda s, x: linear.collect(x, s, direction="in"), [EDGE], E * 6),
        (lambda s, x, w: bilinear.gather_weighted(x, w, s, direction="in"), [VERTEX, SCORES], 2 * E * 6),
        (lambda s, a, b: bilinear.edge_dot(a, b, s), [VERTEX, VERTEX], 2 * E * 6),
        (lambda s, x: extremum.gather_extremum(x, s, reduce="max"), [VERTEX], E * 6),
        (lambda s, x: extremum.collect_extremum(x, s, reduce="max"), [EDGE], E * 6),
        (lambda s, a, b, x: extremum.select_sum(a, b, x, s, direction="in"), [VERTEX] * 3, 2 * E * 6),
        (lambda s, x, y: softmax.edge_softmax(x, y, s), [SCORES, array(V, H)], SOFTMAX * (E + V) * H),
        (lambda s: counts.degrees(s, direction="in"), [], V),
        (counts.self_loops, [], 2 * E),
        *(
            (fused(operator), [array(*shape) for shape in operands_of(operator, V)], E * (ATTENTION * H + 2 * sums * 6))
            for operator, sums in zip(FUSED, (1, 2, 3, 2), strict=True)
        ),
    ],
)
def test_operations_of_each_operator(operator: Any, operands: list[Any], expected: int) -> None:
    structure = structure_of(WHOLE)
    specs = [jax.ShapeDtypeStruct(part.shape, part.dtype) for part in structure]
    equation = make_jaxpr_of(lambda *a: operator(Structure(*a[:5]), *a[5:]), *specs, *operands).jaxpr.eqns[-1]
    assert equation.primitive.name.startswith("dorylax_")
    assert equation_flops(equation, {}) == expected


N, M = export.symbolic_shape("n, e")
GRAPH = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in [((N + 1, 2), jnp.uint32), ((M,), jnp.int32)] * 2]
GRAPH.append(GRAPH[1])


def equation_of(function: Any, *operands: tuple[Any, ...]) -> JaxprEqn:
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in operands]
    return make_jaxpr_of(lambda *a: function(Structure(*a[:5]), *a[5:]), *GRAPH, *specs).jaxpr.eqns[-1]


ROW, PAIR = H * F * 4, H * 4


@pytest.mark.parametrize(
    ("function", "operands", "expected"),
    [
        (lambda s, x: linear.gather_sum(x, s, direction="out"), [(N, H, F)], E * (ROW + 4)),
        (lambda s, x: linear.expand(x, s, direction="out"), [(N, H, F)], E * (ROW + 4)),
        (lambda s, x: linear.expand(x, s, direction="in"), [(N, H, F)], V * ROW),
        (lambda s, x: linear.collect(x, s, direction="in"), [(M, H, F)], E * ROW),
        (lambda s, x: linear.collect(x, s, direction="out"), [(M, H, F)], E * (ROW + 4)),
        (lambda s, x, w: bilinear.gather_weighted(x, w, s, direction="in"), [(N, H, F), (M, H)], E * (ROW + 4 + PAIR)),
        (lambda s, x, w: bilinear.gather_weighted(x, w, s, direction="out"), [(N, H, F), (M, H)], E * (ROW + 8 + PAIR)),
        (lambda s, a, b: bilinear.edge_dot(a, b, s), [(N, H, F)] * 2, V * ROW + E * (ROW + 4)),
        (lambda s, x: extremum.gather_extremum(x, s, reduce="max"), [(N, H, F)], E * (ROW + 4)),
        (lambda s, x: extremum.collect_extremum(x, s, reduce="max"), [(M, H, F)], E * ROW),
        (lambda s, a, b, x: extremum.select_sum(a, b, x, s, direction="in"), [(N, H, F)] * 3, V * ROW + E * (2 * ROW + 4)),
        (lambda s, x, y: softmax.edge_softmax(x, y, s), [(M, H), (N, H)], (E + V) * PAIR),
        (lambda s: counts.degrees(s, direction="in"), [], 0),
        (counts.self_loops, [], E * 4),
        *(
            (fused(operator), operands_of(operator, N), E * (4 + neighbour) + V * own)
            for operator, neighbour, own in zip(
                FUSED,
                (ROW + PAIR, ROW + PAIR, 2 * ROW + 2 * PAIR, ROW + 3 * PAIR),
                (PAIR + 4, PAIR + 4, 2 * ROW + 4 * PAIR + 4, 3 * ROW + PAIR + 4),
                strict=True,
            )
        ),
    ],
)  # fmt: skip
def test_what_each_operator_reads(function: Any, operands: list[tuple[Any, ...]], expected: int) -> None:
    assert gathered_bytes(equation_of(function, *operands), {"n": V, "e": E}) == expected
