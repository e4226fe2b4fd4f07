"""Which equations commute with a product from the right, and how they are written for rows of another width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.graphs import messy_graph

from dorylax.jax_internals import JaxprEqn, Var, eval_jaxpr, make_jaxpr_of
from dorylax.ops.primitives.bilinear import gather_weighted
from dorylax.ops.primitives.extremum import gather_extremum
from dorylax.ops.primitives.linear import gather_sum
from dorylax.ops.primitives.structure import Structure, structure_of
from dorylax.program.jaxpr.builder import Builder
from dorylax.program.jaxpr.instantiate import instantiate
from dorylax.program.jaxpr.symbols import new_dimensions
from dorylax.program.passes.columns import linear_operands, write_again

MESSY = messy_graph()
N, E = new_dimensions()
GRAPH = [((N + 1, 2), jnp.uint32), ((E,), jnp.int32), ((N + 1, 2), jnp.uint32), ((E,), jnp.int32), ((E,), jnp.int32)]


def last(function: Callable[..., Any], *operands: Any) -> tuple[JaxprEqn, dict[Var, JaxprEqn]]:
    """The last equation of a function, and what made each value."""
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in operands]
    equations = make_jaxpr_of(function, *specs).jaxpr.eqns
    return equations[-1], {var: equation for equation in equations for var in equation.outvars}


ROWS = (N, 4)
TABLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[tuple[int, ...]]]] = {
    "neg": (lambda x: -x, (ROWS,), [(0,)]),
    "add": (lambda x, y: x + y, (ROWS, ROWS), [(0, 1)]),
    "sub": (lambda x, y: x - y, (ROWS, ROWS), [(0, 1)]),
    "add a number": (lambda x: x + 1.0, (ROWS,), []),
    "add a row": (lambda x, b: x + b, (ROWS, (4,)), []),
    "mul by a number": (lambda x: x * 2.0, (ROWS,), [(0,)]),
    "mul by an array of one number": (lambda x, s: x * s, (ROWS, ()), [(0,)]),
    "mul by a number per row": (lambda x, s: x * s, (ROWS, (N, 1)), [(0,)]),
    "mul by a vector of rows": (lambda x, s: x * s[:, None], (ROWS, (N,)), [(0,)]),
    "mul from the left": (lambda x, s: jnp.broadcast_to(s, x.shape) * x, (ROWS, (N, 1)), [(1,)]),
    "mul by a number per column": (lambda x, s: x * s, (ROWS, (4,)), []),
    "mul by rows": (lambda x, y: x * y, (ROWS, ROWS), []),
    "mul of single columns": (lambda x, y: x * y, ((N, 1), (N, 1)), [(0,), (1,)]),
    "div by a number per row": (lambda x, s: x / s, (ROWS, (N, 1)), [(0,)]),
    "div of a number per row": (lambda x, s: s / x, (ROWS, (N, 1)), []),
    "div of single columns": (lambda x, y: x / y, ((N, 1), (N, 1)), [(0,)]),
    "exp": (jnp.exp, (ROWS,), []),
    "max": (jnp.maximum, (ROWS, ROWS), []),
    "reshape to one head": (lambda x: x.reshape(x.shape[0], 1, 4), (ROWS,), [(0,)]),
    "reshape of one head": (lambda x: x.reshape(x.shape[0], 4), ((N, 1, 4),), [(0,)]),
    "reshape to heads": (lambda x: x.reshape(x.shape[0], 2, 2), (ROWS,), []),
    "reshape of heads": (lambda x: x.reshape(x.shape[0], 4), ((N, 2, 2),), []),
    "expand_dims": (lambda x: jax.lax.expand_dims(x, (1,)), (ROWS,), [(0,)]),
    "expand_dims at the end": (lambda x: jax.lax.expand_dims(x, (2,)), (ROWS,), []),
    "squeeze": (lambda x: jax.lax.squeeze(x, (1,)), ((N, 1, 4),), [(0,)]),
    "squeeze to a vector": (lambda x: jax.lax.squeeze(x, (1,)), ((N, 1),), []),
    "broadcast to one head": (lambda x: jax.lax.broadcast_in_dim(x, (N, 1, 4), (0, 2)), (ROWS,), [(0,)]),
    "broadcast to columns": (lambda x: jax.lax.broadcast_in_dim(x, ROWS, (0, 1)), ((N, 1),), []),
    "broadcast of a vector": (lambda x: jax.lax.broadcast_in_dim(x, ROWS, (0,)), ((N,),), []),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), (ROWS, ROWS), []),
    "slice": (lambda x: x[:, :2], (ROWS,), []),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (ROWS,), []),
    "transpose": (lambda x: x.T, (ROWS,), []),
    "product": (lambda x, w: x @ w, (ROWS, (4, 3)), []),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_linear_and_acts_on_rows(name: str) -> None:
    function, operands, expected = TABLE[name]
    equation, makers = last(function, *operands)
    assert linear_operands(equation, makers) == expected


GATHERERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[tuple[int, ...]]]] = {
    "sum": (lambda s, x: gather_sum(x, s, direction="in"), ((N, 1, 4),), [(0,)]),
    "sum backward": (lambda s, x: gather_sum(x, s, direction="out"), ((N, 1, 4),), [(0,)]),
    "sum of heads": (lambda s, x: gather_sum(x, s, direction="in"), ((N, 2, 2),), []),
    "weighted": (lambda s, x, w: gather_weighted(x, w, s, direction="in"), ((N, 1, 4), (E, 1)), [(0,)]),
    "weighted heads": (lambda s, x, w: gather_weighted(x, w, s, direction="in"), ((N, 2, 2), (E, 2)), []),
    "largest": (lambda s, x: gather_extremum(x, s, reduce="max"), ((N, 1, 4),), []),
}


@pytest.mark.parametrize("name", GATHERERS)
def test_gathers(name: str) -> None:
    function, shapes, expected = GATHERERS[name]
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in GRAPH]
    specs += [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    equation = make_jaxpr_of(lambda *a: function(Structure(*a[:5]), *a[5:]), *specs).jaxpr.eqns[-1]
    assert linear_operands(equation, {}) == expected


V, WIDE = 20, 4
WRITTEN: dict[str, Callable[..., Any]] = {
    "neg": lambda g, x, s: -x,
    "add": lambda g, x, s: x + -x * 3,
    "mul": lambda g, x, s: x * s,
    "mul from the left": lambda g, x, s: jnp.broadcast_to(s, x.shape) * x,
    "mul by a vector of rows": lambda g, x, s: x * s[:, 0][:, None],
    "mul by an array of one number": lambda g, x, s: x * jnp.full((), 3.0),
    "div": lambda g, x, s: x / s,
    "div from one head": lambda g, x, s: x[:, None] / s[:, None],
    "expand_dims": lambda g, x, s: jax.lax.expand_dims(x, (1,)),
    "broadcast": lambda g, x, s: jax.lax.broadcast_in_dim(x, (x.shape[0], 1, x.shape[1]), (0, 2)),
    "there and back": lambda g, x, s: x.reshape(x.shape[0], 1, x.shape[1]).reshape(x.shape),
    "sum": lambda g, x, s: gather_sum(x[:, None], g, direction="in"),
    "sum backward": lambda g, x, s: gather_sum(x[:, None], g, direction="out"),
}


@pytest.mark.parametrize("width", [2, 1])
@pytest.mark.parametrize("name", WRITTEN)
def test_written_for_another_width(name: str, width: int) -> None:
    """Traced on narrow rows, written again for wide ones: what the function itself gives of those."""
    function = WRITTEN[name]
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in GRAPH]
    specs += [jax.ShapeDtypeStruct((N, columns), jnp.float32) for columns in (WIDE, width, 1)]
    closed = make_jaxpr_of(lambda *a: function(Structure(*a[:5]), *a[6:]), *specs)
    makers = {var: equation for equation in closed.jaxpr.eqns for var in equation.outvars}
    builder = Builder(closed)
    wide: dict[Any, Any] = {closed.jaxpr.invars[6]: closed.jaxpr.invars[5]}
    for equation in closed.jaxpr.eqns:
        ways = [way for way in linear_operands(equation, makers) if all(equation.invars[i] in wide for i in way)]
        if not ways:
            builder.keep(equation)
            continue
        operands = {i: wide[equation.invars[i]] for i in ways[0]}
        wide[equation.outvars[0]] = write_again(builder, equation, operands, makers, WIDE)
    (result,) = closed.jaxpr.outvars
    builder.replace(result, wide[result])
    again = instantiate(builder.finish(), {"n": V, "e": int(MESSY.num_edges)})

    rng = np.random.default_rng(0)
    x = rng.normal(size=(V, WIDE)).astype(np.float32)
    factor = rng.uniform(0.5, 1.5, (V, 1)).astype(np.float32)
    structure = structure_of(MESSY)
    (found,) = eval_jaxpr(again.jaxpr, again.consts, *structure, x, x[:, :width], factor)
    np.testing.assert_allclose(found, function(structure, x, factor), rtol=1e-6)
