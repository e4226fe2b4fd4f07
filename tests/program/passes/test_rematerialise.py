"""rematerialise: backward stages compute forward values again where that costs less than to read them."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support import zoo

from dorylax import ops
from dorylax.jax_internals import variables
from dorylax.layers import GraphSAGE
from dorylax.program import Program, optimise, trace

rematerialise = functools.partial(optimise, passes=["rematerialise"])

SHAPES = {"a": (zoo.F, 16), "b": (16, zoo.C)}


def model(p: Any, graph: Any, x: Any, key: Any) -> Any:
    h = jax.nn.silu(ops.gather(graph, x) @ p["a"])
    h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h / 0.5, 0)
    return ops.gather(graph, h @ p["b"], reduce="mean")


CASE = zoo.Case(lambda dtype: (model, {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}))


@pytest.fixture(scope="module")
def program() -> Program:
    traced = trace(zoo.parts_of(CASE, "float32"), zoo.spec_of(CASE, "float32"))
    return optimise(traced, ["prune", "hoist"])


def where(program: Program, primitive: str) -> list[str]:
    """The phases of the stages that hold such an equation."""
    return [
        task.phase
        for task in program.tasks
        if task.kind == "stage" and any(e.primitive.name == primitive for e in task.equations)
    ]


def copies(program: Program) -> Counter[int]:
    return Counter(id(equation) for task in program.tasks for equation in task.equations)


@pytest.mark.parametrize(("flops_per_byte", "phases"), [(1.0, ["forward"]), (1000.0, ["forward", "backward"])])
def test_masks_are_drawn_again_where_that_is_cheaper(
    program: Program, monkeypatch: pytest.MonkeyPatch, flops_per_byte: float, phases: list[str]
) -> None:
    assert where(program, "threefry2x32") == ["forward"]
    module = importlib.import_module("dorylax.program.passes.crossing")
    monkeypatch.setattr(module, "FLOPS_PER_BYTE", flops_per_byte)
    after = rematerialise(program)
    assert where(after, "threefry2x32") == phases
    masks = [v for i in after.interfaces for v in i.writes if v.aval.dtype == bool and v.aval.shape[1:] == (16,)]
    assert len(masks) == (phases == ["forward"])


def test_products_may_be_repeated(program: Program) -> None:
    """What goes into the activation is 2 · 5 FLOPs for 8 bytes, and its operand is read for the gradient anyway."""
    before, after = copies(program), copies(rematerialise(program))
    products = {id(e): e for e in program.traced.step.jaxpr.eqns if e.primitive.name == "dot_general"}
    assert any(after[key] > before[key] for key in products)


def test_only_backward_stages_change(program: Program) -> None:
    """Forward stages at most lose what was there for the backward pass alone."""
    kept = zip(program.tasks, rematerialise(program).tasks, strict=True)
    for before, after in kept:
        assert before.phase == "backward" or set(map(id, after.equations)) <= set(map(id, before.equations))


def test_nothing_of_the_backward_pass_is_repeated(program: Program) -> None:
    after = copies(rematerialise(program))
    for equation in program.traced.step.jaxpr.eqns:
        if any(var in program.analysis.backward for var in equation.outvars) and not program.analysis.floats(equation):
            assert after[id(equation)] == 1


def test_fewer_bytes_for_more_flops(program: Program) -> None:
    before, after = (p.cost(20_000, 300_000).epoch for p in (program, rematerialise(program)))
    assert after.shipped_bytes < before.shipped_bytes
    assert after.flops > before.flops


def largest(p: Any, graph: Any, x: Any, key: Any) -> Any:
    h = jax.nn.silu(ops.gather(graph, x) @ p["a"])
    h = jnp.maximum(h, jnp.tanh(h))
    return ops.gather(graph, h @ p["b"])


def is_float(var: Any) -> bool:
    return bool(jnp.issubdtype(var.aval.dtype, jnp.floating))


LARGEST = zoo.Case(lambda dtype: (largest, {name: np.zeros(shape, dtype) for name, shape in SHAPES.items()}))


DEEP = zoo.Case(
    lambda dtype: GraphSAGE(
        zoo.F, 4, zoo.C, num_layers=3, norm="layer", residual=True, jk="max", param_dtype=dtype, rngs=nnx.Rngs(1)
    )
)


@pytest.mark.parametrize("case", [LARGEST, zoo.ALL["jumping by hand"], DEEP], ids=["maximum", "stack", "deep"])
def test_a_maximum_is_compared_with_the_values_it_was_made_of(case: zoo.Case) -> None:
    """The gradient of a maximum goes where input and output are equal, so both have to come from the same computation.

    A value that is computed again may be rounded otherwise. If it is compared with a saved maximum, the gradient is lost.
    """
    after = optimise(trace(zoo.parts_of(case, "float32"), zoo.spec_of(case, "float32")))
    makers = {var: equation for task in after.tasks for equation in task.equations for var in equation.outvars}

    def sources(var: Any, inside: Any = makers) -> set[Any]:
        """The value and all that it is computed from, by these equations."""
        found, left = set(), [var]
        while left:
            if (one := left.pop()) not in found:
                found.add(one)
                left += variables(inside[one].invars) if one in inside else []
        return found

    home: dict[Any, Any] = {}
    compared = 0
    for task in after.tasks:
        again = {var for var in task.defined if home.setdefault(var, task) is not task and is_float(var)}
        inside = {var: equation for equation in task.equations for var in equation.outvars}
        for equation in task.equations if task.kind == "stage" else ():
            if equation.primitive.name == "eq" and is_float(equation.invars[0]):
                compared += 1
                made = set().union(*(sources(var, inside) for var in variables(equation.invars)))
                for var in made & set(task.read):
                    assert not sources(var) & made & again, f"{equation} reads {var}"
    assert compared
