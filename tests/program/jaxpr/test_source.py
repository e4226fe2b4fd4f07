from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from support.graphs import messy_graph

from dorylax.jax_internals import make_jaxpr_of
from dorylax.layers import GCNConv
from dorylax.program.jaxpr.errors import where_written

X = jax.ShapeDtypeStruct((20, 3), jnp.float32)


class Users:
    def __call__(self, fun: Any, x: Any) -> Any:
        return fun(x)


USERS_LINE = f", at test_source.py:{Users.__call__.__code__.co_firstlineno + 1} (Users.__call__)"


@pytest.mark.parametrize("fun", [jnp.sin, nnx.LayerNorm(3, rngs=nnx.Rngs(0))], ids=["jax", "flax"])
def test_the_innermost_line_outside_the_libraries(fun: Any) -> None:
    closed = make_jaxpr_of(lambda x: Users()(fun, x), X)
    assert {where_written(equation) for equation in closed.jaxpr.eqns} == {USERS_LINE}


def test_our_own_layers_are_library_and_so_is_what_checks_their_types() -> None:
    conv, graph = GCNConv(3, 2, rngs=nnx.Rngs(0)), messy_graph()
    closed = make_jaxpr_of(lambda x: Users()(lambda x: conv(graph, x), x), X)
    (place,) = {where_written(equation) for equation in closed.jaxpr.eqns}
    assert place.startswith(", at test_source.py:")


def test_where_nothing_is_known_nothing_is_said() -> None:
    (equation,) = make_jaxpr_of(jnp.sin, X).jaxpr.eqns
    bare = equation.replace(source_info=equation.source_info.replace(traceback=None))
    assert where_written(bare) == ""
