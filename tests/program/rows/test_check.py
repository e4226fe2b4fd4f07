"""The driver: inputs, unknown operations, messages."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from dorylax.jax_internals import Primitive, mlir
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.rows.check import infer
from dorylax.program.rows.errors import RowError
from dorylax.program.rows.rules import RULES
from dorylax.program.rows.types import Free, GraphArray, Rows, Summed

V, E, SUM, FREE = Rows("vertex", 0), Rows("edge", 0), Summed(), Free()

X = (V, ("n", 6))


def _jaxpr(fun: Any, *shapes: Any) -> Any:
    n, e = export.symbolic_shape("n, e")
    sizes = {"n": n, "e": e}
    return jax.make_jaxpr(fun)(
        *(jax.ShapeDtypeStruct(tuple(sizes.get(d, d) for d in shape), jnp.float32) for shape in shapes)
    ).jaxpr


def test_inputs_must_fit():
    jaxpr = _jaxpr(lambda x: x, ("n", 6))
    for kind in (FREE, SUM, Rows("vertex", 1), E, Rows("vertex", 0, 2)):
        with pytest.raises(ValueError, match=r"inputs\[0\] is said to be"):
            infer(jaxpr, [kind])
    with pytest.raises(ValueError, match="a type for each of the 1 inputs, got 2"):
        infer(jaxpr, [V, V])


def test_unknown_operations(rows: Any):
    unknown = Primitive("not_known")
    unknown.def_abstract_eval(lambda x: x)
    with pytest.raises(RowError, match="no rule for the operation not_known") as caught:
        rows.results(unknown.bind, X)
    assert "report" in caught.value.advice
    with pytest.raises(RowError, match="no rule"):
        rows.results(unknown.bind, (SUM, (6,)))
    # Where there are no rows there is nothing to mix.
    assert rows.results(unknown.bind, (FREE, (6,))) == [FREE]


def test_unknown_operations_that_hold_functions(rows: Any):
    holder = Primitive("holds_a_function")
    holder.def_abstract_eval(lambda x, jaxpr: x)
    inner = jax.make_jaxpr(jnp.sin)(1.0)
    with pytest.raises(RowError, match="no rule"):
        rows.results(lambda p: holder.bind(p, jaxpr=inner), (FREE, (6,)))


def test_a_rule_is_compared_with_shapes(rows: Any, monkeypatch: pytest.MonkeyPatch):
    for wrong in ([Rows("vertex", 1)], [Free()], [Summed()], [V, V], [GraphArray()]):
        monkeypatch.setitem(RULES, "sin", lambda op, wrong=wrong: wrong)
        with pytest.raises(RowError, match="cannot be computed vertex by vertex"):
            rows.results(jnp.sin, X)
    monkeypatch.setitem(RULES, "reduce_max", lambda op: [Free()])
    with pytest.raises(RowError, match="loses its rows"):
        rows.results(lambda x: x.max(0), X)
    monkeypatch.setitem(RULES, "random_bits", lambda op: [V])
    with pytest.raises(RowError, match="random_bits makes vertex rows"):
        rows.results(lambda x: jax.random.bits(jax.random.key(0), x.shape), X)
    monkeypatch.setitem(RULES, "copy", lambda op: [V])
    with pytest.raises(RowError):
        rows.results(lax.copy_p.bind, (SUM, (6,)))


def test_sizes_that_are_hidden_in_parameters(rows: Any):
    def fun(x: Any, p: Any) -> Any:
        return lax.reduce_window(p, 0.0, lax.add, (x.shape[0],), (1,), ((x.shape[0] - 1, 0),))

    with pytest.raises(RowError, match="the number of rows is a parameter of reduce_window_sum"):
        rows.results(fun, X, (FREE, (6,)))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, x.shape[0]), (1, 1), ((0, 0), (x.shape[0] - 1, 0))),
        lambda x: lax.pad(x, 0.0, ((0, 0, 0), (x.shape[0], -x.shape[0], 0))),
        lambda x: lax.reduce(x, 0.0, lambda a, b: a + b * jnp.asarray(x.shape[0], jnp.float32), (1,)),
        lambda x: lax.slice(x, (0, jax.core.min_dim(x.shape[0], 3)), (x.shape[0], jax.core.min_dim(x.shape[0], 3) + 2)),
    ],
)
def test_numbers_of_rows_that_act_on_other_axes(rows: Any, fun: Any):
    with pytest.raises(RowError, match="the number of rows is a parameter of"):
        rows.results(fun, X)


def test_numbers_of_rows_inside_loops(rows: Any):
    def fun(x: Any, p: Any) -> Any:
        return lax.cond(p[0] > 0, lambda: x / x.shape[0], lambda: x)

    with pytest.raises(RowError, match="reads the number of vertices or edges inside cond"):
        rows.results(fun, X, (FREE, (6,)))
    assert rows.results(jax.jit(lambda x: x / x.shape[0]), X) == [V]


def test_message():
    jaxpr = _jaxpr(lambda x: jnp.exp(x).max(axis=0), ("n", 6))
    with pytest.raises(RowError) as caught:
        infer(jaxpr, [V], phase="in the gradient: ")
    error = caught.value
    assert str(error).startswith(
        "in the gradient: combines values of different vertices: reduction over the vertex axis [reduce_max, at "
    )
    assert error.equation.primitive.name == "reduce_max"
    assert error.reason == "reduction over the vertex axis"
    assert str(error).endswith(f". {error.advice}.")
    assert isinstance(error, SplitError)


def test_message_of_a_sum_names_both_places():
    def fun(x: Any) -> Any:
        total = x.sum(axis=0)
        return x / total

    with pytest.raises(RowError) as caught:
        infer(_jaxpr(fun, ("n", 6)), [V])
    assert caught.value.equation.primitive.name == "reduce_sum"
    assert caught.value.reason == "reduction over the vertex axis"
    assert "used for single vertices [div, at test_check.py" in str(caught.value)


def test_every_rule_names_a_primitive_of_jax():
    tables = (mlir._lowerings, *mlir._platform_specific_lowerings.values())
    known = {primitive.name for table in tables for primitive in table}
    known |= {
        "custom_jvp_call",
        "custom_vjp_call",
        "pjit",
        "checkpoint",
        "core_call",
        "closed_call",
    }  # inlined or renamed
    assert {name for name in RULES if not name.startswith("dorylax_")} <= known
