from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from support.graphs import messy_graph

from dorylax import ops
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, make_jaxpr_of
from dorylax.program.jaxpr.graph_operators import is_graph_operator
from dorylax.program.jaxpr.simplify import simplify
from dorylax.program.tracing.differentiate import share_reshapes
from dorylax.program.tracing.flatten import flatten

GRAPH = messy_graph(8, 14)
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def shared(fun: Any) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    before = simplify(flatten(make_jaxpr_of(fun, X), custom=True))
    after = share_reshapes(before)
    for a, b in zip(*(eval_jaxpr(one.jaxpr, one.consts, X) for one in (after, before)), strict=True):
        np.testing.assert_array_equal(a, b)
    return before, after


def test_other_readers_read_the_operand() -> None:
    def fun(x: Any) -> Any:
        h = jnp.tanh(x)
        return ops.gather(GRAPH, h) + h, h

    before, after = shared(fun)
    (operator,) = filter(is_graph_operator, after.jaxpr.eqns)
    operand = operator.invars[0]
    (tanh,) = (equation for equation in after.jaxpr.eqns if equation.primitive.name == "tanh")
    readers = [equation.primitive.name for equation in after.jaxpr.eqns if tanh.outvars[0] in equation.invars]
    assert readers == ["reshape"]  # what is computed is read only to make the operand
    assert after.jaxpr.outvars[1] not in tanh.outvars
    back = [e for e in after.jaxpr.eqns if operand in e.invars and not is_graph_operator(e)]
    assert [e.primitive.name for e in back] == ["reshape"]
    assert back[0].outvars[0].aval == tanh.outvars[0].aval
    assert len(after.jaxpr.eqns) == len(before.jaxpr.eqns) + 1


def test_what_only_the_operator_reads_stays() -> None:
    before, after = shared(lambda x: ops.gather(GRAPH, jnp.tanh(x)))
    assert [e.primitive.name for e in after.jaxpr.eqns] == [e.primitive.name for e in before.jaxpr.eqns]


def test_inputs_stay_inputs() -> None:
    before, after = shared(lambda x: ops.gather(GRAPH, x) + x)
    assert len(after.jaxpr.eqns) == len(before.jaxpr.eqns)
