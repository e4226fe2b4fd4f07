"""cut: light arithmetic is repeated where that ships fewer bytes; products and random bits are not."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo

from dorylax import ops
from dorylax.program import Program, optimise, trace

cut = functools.partial(optimise, passes=["cut"])

SHAPES = {"a": (zoo.F, 8), "b": (8, zoo.C)}


def model(p: Any, graph: Any, x: Any, key: Any) -> Any:
    """GCN whose norm, a number for each row, is multiplied with all columns before and after both gathers."""
    norm = jax.lax.rsqrt(jnp.maximum(ops.in_degrees(graph, x.dtype), 1))
    h = jnp.tanh(norm[:, None] * ops.gather(graph, norm[:, None] * (x @ p["a"])))
    h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h, 0)
    return norm[:, None] * ops.gather(graph, norm[:, None] * (h @ p["b"]))


def case_of(function: Any, shapes: dict[str, tuple[int, ...]], *inputs: str) -> zoo.Case:
    return zoo.Case(lambda dtype: (function, {k: np.zeros(s, dtype) for k, s in shapes.items()}), inputs)


CASE = case_of(model, SHAPES, "x")


@pytest.fixture(scope="module")
def program() -> Program:
    return optimise(trace(zoo.parts_of(CASE, "float32"), zoo.spec_of(CASE, "float32")), ["prune", "hoist"])


def broadcasts_that_cross(program: Program) -> int:
    """Values that a stage writes and that are a number for each row, spread over columns."""
    makers = {var: e for e in program.traced.step.jaxpr.eqns for var in e.outvars}
    return sum(
        makers[var].primitive.name == "broadcast_in_dim" and var.aval.size != makers[var].invars[0].aval.size
        for task, interface in zip(program.tasks, program.interfaces, strict=True)
        if task.kind == "stage"
        for var in interface.writes
    )


def copies(program: Program, *names: str) -> Counter[int]:
    return Counter(
        id(e)
        for task in program.tasks
        for e in task.equations
        if e.primitive.name in names and not program.analysis.floats(e)
    )


def wide(p: Any, graph: Any, x: Any, norm: Any) -> Any:
    spread = jnp.broadcast_to(norm, (norm.shape[0], 8))
    return (ops.gather(graph, (x @ p["a"]) * spread) * spread) @ p["b"]


@pytest.mark.parametrize("passes", [["cut"], ["fuse", "cut"]], ids="+".join)
def test_norms_cross_as_one_number_for_each_row(passes: list[str]) -> None:
    case = case_of(wide, SHAPES, "x", "norm")
    program = trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))
    assert broadcasts_that_cross(program) > 0
    after = optimise(program, passes)
    assert broadcasts_that_cross(after) == 0


def test_one_hot_rows_do_not_cross() -> None:
    def loss(output: Any, labels: Any) -> Any:
        return -(jax.nn.one_hot(labels, zoo.C, dtype=output.dtype) * jax.nn.log_softmax(output)).sum(axis=1)

    case = case_of(wide, SHAPES, "x", "norm")
    program = trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"), loss=loss, metrics=None)
    for passes in (["cut"], ["fuse", "cut"]):
        after = optimise(program, passes)
        makers = {var: e.primitive.name for e in after.traced.step.jaxpr.eqns for var in e.outvars}
        hot = {var for var, name in makers.items() if name in ("eq", "convert_element_type") and var.aval.ndim == 2}
        assert hot
        crossing = {var for k, t in enumerate(after.tasks) if t.kind == "stage" for var in after.interfaces[k].writes}
        assert not hot & crossing


@pytest.mark.parametrize("name", ["GCN", "GIN deep", "MPNN", "sharing", "linen GIN"])
def test_products_and_random_bits_are_not_repeated(name: str) -> None:
    case, heavy = zoo.ALL[name], ("dot_general", "threefry2x32", "random_bits")
    plain = trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"))
    for passes in (["prune"], ["prune", "hoist", "fuse"]):
        before = optimise(plain, passes)
        assert copies(cut(before), *heavy) == copies(before, *heavy)


def test_a_product_moves_or_stays() -> None:
    """Even where the stage that reads wide rows would better compute them, and read something else made of them."""

    def both(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        h = norm @ p["w"]
        seen = (h[:, : zoo.F] * x).sum(axis=1)
        return (jnp.tanh(h) * ops.gather(graph, norm)) @ p["v"] + seen[:, None]

    case = case_of(both, {"w": (1, 16), "v": (16, zoo.C)}, "x", "norm")
    program = trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"), loss=None)
    assert max(copies(cut(program), "dot_general").values()) == 1


def test_light_arithmetic_is_repeated() -> None:
    """Three stages spread the same number: each for itself."""

    def thrice(p: Any, graph: Any, x: Any, norm: Any) -> Any:
        h, spread = x @ p["a"], jnp.sqrt(jnp.broadcast_to(norm, (norm.shape[0], 8)))
        for _ in range(3):
            h = ops.gather(graph, h) * spread
        return h @ p["b"]

    case = case_of(thrice, SHAPES, "x", "norm")
    program = trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32"), loss=None)
    assert max(copies(program, "sqrt").values()) == 1
    assert max(copies(cut(program), "sqrt").values()) == 3


def test_fewer_bytes_are_shipped(program: Program) -> None:
    before, after = (p.cost(20_000, 300_000).epoch for p in (program, cut(program)))
    assert after.shipped_bytes < before.shipped_bytes
    assert after.gathered_bytes == before.gathered_bytes
