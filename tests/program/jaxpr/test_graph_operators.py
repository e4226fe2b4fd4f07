"""Operations of graph operators and bytes that they read, against numbers counted by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

from dorylax.jax_internals import make_jaxpr_of
from dorylax.ops.primitives import attention, extremum, linear, softmax
from dorylax.ops.primitives.attention import ATTENTION
from dorylax.ops.primitives.operator import Operator
from dorylax.ops.primitives.softmax import SOFTMAX
from dorylax.ops.primitives.structure import Structure
from dorylax.program.jaxpr.flops import equation_flops
from dorylax.program.jaxpr.graph_operators import gathered_bytes

V, E, H, F = 5, 12, 2, 3
N, M = export.symbolic_shape("n, e")
GRAPH = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in [((N + 1, 2), jnp.uint32), ((M,), jnp.int32)] * 2]
GRAPH.append(GRAPH[1])
X, MESSAGES, SCORES = (N, H, F), (M, H, F), (M, H)
ROW, PAIR = H * F * 4, H * 4
ENTRY = ROW + 4  # a row and its number


def fused(operator: Operator) -> Any:
    """A fused operator of attention, as a function of the structure and its operands."""
    return lambda structure, *dense: operator(*dense, structure, negative_slope=0.2)


FUSED = [attention.attention, attention.attention_saving, attention.attention_tangent, attention.attention_backward]


@pytest.mark.parametrize(
    ("operator", "operands", "operations", "read"),
    [
        (lambda s, x: linear.gather_sum(x, s, direction="out"), [X], E * 6, E * ENTRY),
        (lambda s, x: linear.expand(x, s, direction="out"), [X], 0, E * ENTRY),
        (lambda s, x: linear.expand(x, s, direction="in"), [X], 0, V * ROW),
        (lambda s, x: linear.collect(x, s, direction="in"), [MESSAGES], E * 6, E * ROW),
        (lambda s, x: linear.collect(x, s, direction="out"), [MESSAGES], E * 6, E * ENTRY),
        (lambda s, x, w: linear.gather_weighted(x, w, s, direction="in"), [X, SCORES], 2 * E * 6, E * (ENTRY + PAIR)),
        (lambda s, x, w: linear.gather_weighted(x, w, s, direction="out"), [X, SCORES], 2 * E * 6, E * (ENTRY + 4 + PAIR)),
        (lambda s, a, b: linear.edge_dot(a, b, s), [X] * 2, 2 * E * 6, V * ROW + E * ENTRY),
        (lambda s, x: extremum.gather_extremum(x, s, reduce="max"), [X], E * 6, E * ENTRY),
        (lambda s, x: extremum.collect_extremum(x, s, reduce="max"), [MESSAGES], E * 6, E * ROW),
        (lambda s, a, b, x: extremum.select_sum(a, b, x, s, direction="in"), [X] * 3, 2 * E * 6, (V + E) * ROW + E * ENTRY),
        (lambda s, x, y: softmax.edge_softmax(x, y, s), [SCORES, (N, H)], SOFTMAX * (E + V) * H, (E + V) * PAIR),
        (lambda s: linear.degrees(s, direction="in"), [], V, 0),
        (linear.self_loops, [], 2 * E, E * 4),
        *(
            (
                fused(operator), [X[: operand.axes] for operand in operator.operands],
                E * (ATTENTION * H + 2 * sums * 6), E * (4 + neighbour) + V * own,
            )
            for operator, sums, neighbour, own in zip(
                FUSED,
                (1, 2, 3, 2),
                (ROW + PAIR, ROW + PAIR, 2 * ROW + 2 * PAIR, ROW + 3 * PAIR),
                (PAIR + 4, PAIR + 4, 2 * ROW + 4 * PAIR + 4, 3 * ROW + PAIR + 4),
                strict=True,
            )
        ),
    ],
)  # fmt: skip
def test_operations_of_each_operator_and_what_it_reads(
    operator: Any, operands: list[tuple[Any, ...]], operations: int, read: int
) -> None:
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in operands]
    equation = make_jaxpr_of(lambda *a: operator(Structure(*a[:5]), *a[5:]), *GRAPH, *specs).jaxpr.eqns[-1]
    assert equation.primitive.name.startswith("dorylax_")
    assert equation_flops(equation, {"n": V, "e": E}) == operations
    assert gathered_bytes(equation, {"n": V, "e": E}) == read
