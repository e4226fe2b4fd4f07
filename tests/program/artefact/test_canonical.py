"""The canonical form: what is alike shares a function, what is not never does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import export
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from dorylax.jax_internals import ClosedJaxpr, close, eval_jaxpr, is_literal
from dorylax.layers.gcnii import GCNII
from dorylax.program.artefact.canonical import canonical, share
from dorylax.program.jaxpr.rewrite import instantiate
from dorylax.program.program import trace
from dorylax.program.tracing.spec import DataSpec, RowSpec


def stage(fun: Callable[..., Any], *shapes: str, dtypes: str = "") -> ClosedJaxpr:
    """The jaxpr of a function of float32 arrays; shapes as in "n, 4"."""
    scope = export.SymbolicScope()
    kinds = dtypes.split() or ["float32"] * len(shapes)
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), kind)
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    return jax.make_jaxpr(fun)(*specs)


def layer(factor: float = 0.5) -> Callable[..., Any]:
    def fun(x: Any, w: Any, b: Any) -> Any:
        y = jnp.tanh(x @ w)
        return y + b, y * factor

    return fun


def shuffled(closed: ClosedJaxpr, seed: int) -> ClosedJaxpr:
    """The same function: equations in another order that respects dependence, inputs and outputs in any order."""
    draw, jaxpr = random.Random(seed), closed.jaxpr
    known, rest, equations = set(jaxpr.invars), list(jaxpr.eqns), []
    while rest:
        chosen = draw.choice([e for e in rest if all(is_literal(atom) or atom in known for atom in e.invars)])
        rest.remove(chosen)
        equations.append(chosen)
        known.update(chosen.outvars)
    inputs, outputs = list(jaxpr.invars), list(jaxpr.outvars)
    draw.shuffle(inputs)
    draw.shuffle(outputs)
    return close(inputs, outputs, equations)


def groups_of(*stages: ClosedJaxpr) -> list[list[int]]:
    return [[member.stage for member in group.members] for group in share(stages)]


def test_shardings_are_compared_by_value() -> None:
    """As in the gradient of a conversion, each time another object."""

    def converted() -> ClosedJaxpr:
        closed = stage(lambda x: x.astype(jnp.bfloat16), "n, 3")
        (equation,) = closed.jaxpr.eqns
        sharding = NamedSharding(AbstractMesh((), ()), PartitionSpec(None, None))
        other = equation.replace(params={**equation.params, "sharding": sharding})
        return close(closed.jaxpr.invars, closed.jaxpr.outvars, [other])

    assert canonical(converted()).key == canonical(converted()).key


def test_order_of_inputs_outputs_and_equations_does_not_matter() -> None:
    original = stage(layer(), "n, 4", "4, 3", "3")
    assert {canonical(shuffled(original, seed)).key for seed in range(20)} == {canonical(original).key}


def test_edge_and_vertex_stages_may_be_alike() -> None:
    (group,) = share([stage(layer(), "n, 4", "4, 3", "3"), stage(layer(), "e, 4", "4, 3", "3")])
    assert len(group.members) == 2
    assert str(group.function.jaxpr.invars[0].aval.shape[0]) == "rows"


def test_members_compute_what_their_stages_compute() -> None:
    rng = np.random.default_rng(0)
    stages = [shuffled(stage(layer(factor), "n, 4", "4, 3", "3"), seed) for seed, factor in enumerate([0.1, 0.7, -3.0])]
    (group,) = share(stages)
    function = instantiate(group.function, {"rows": 5})
    for member in group.members:
        concrete = instantiate(stages[member.stage], {"n": 5})
        values = [rng.normal(size=var.aval.shape).astype(np.float32) for var in concrete.jaxpr.invars]
        expected = eval_jaxpr(concrete.jaxpr, (), *values)
        literals = [np.float32(value) for value in member.literals]
        found = eval_jaxpr(function.jaxpr, (), *(values[k] for k in member.inputs), *literals)
        for place, value in zip(member.outputs, found, strict=True):
            np.testing.assert_array_equal(value, expected[place])


def test_only_literals_that_differ_become_inputs() -> None:
    def affine(a: float, b: float) -> ClosedJaxpr:
        return stage(lambda x: x * np.float32(a) + np.float32(b), "n")

    (group,) = share([affine(2, 1), affine(3, 1), affine(4, 1)])
    assert [member.literals for member in group.members] == [(2.0,), (3.0,), (4.0,)]
    (group,) = share([affine(2, 1), affine(2, 1)])
    assert [member.literals for member in group.members] == [(), ()]
    assert len(group.function.jaxpr.invars) == 1


@pytest.mark.parametrize(
    ("one", "other", "differ"), [("nan", "nan", False), ("0.0", "-0.0", True), ("inf", "-inf", True)]
)
def test_literals_differ_by_their_bits(one: str, other: str, differ: bool) -> None:
    stages = [stage(lambda x, value=value: jnp.maximum(x, np.float32(value)), "n") for value in (one, other)]
    (group,) = share(stages)
    assert len(group.function.jaxpr.invars) == 1 + differ


def _scan(step: float) -> Callable[..., Any]:
    return lambda x: jax.lax.scan(lambda carry, _: (carry * np.float32(step), None), x, None, length=3)[0]


def _with_table(middle: float) -> Callable[..., Any]:
    # So long that its `repr` leaves the middle out.
    table = np.zeros(3000, np.float32)
    table[1500] = middle
    return jax.jit(lambda x: x + table)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stage(lambda x: x + 1, "n", dtypes="int32"), stage(lambda x: x + 2, "n", dtypes="int32")),
        (stage(lambda x: x * 2, "n"), stage(lambda x: x * 2, "n", dtypes="int32")),
        (stage(lambda x: x**2, "n"), stage(lambda x: x**3, "n")),
        (stage(lambda x: x + 1, "n, 3"), stage(lambda x: x + 1, "n, 4")),
        (stage(lambda x: x.sum(1), "n, 3, 3"), stage(lambda x: x.sum(2), "n, 3, 3")),
        (stage(lambda x, y: x - y, "n", "n"), stage(lambda x, y: x - x + 0 * y, "n", "n")),
        (stage(lambda x, y: (x - y, y), "n", "n"), stage(lambda x, y: (x - y, x), "n", "n")),
        (stage(_scan(2), "n"), stage(_scan(3), "n")),
        (stage(_with_table(1), "n, 3000"), stage(_with_table(2), "n, 3000")),
        (stage(lambda x: x.reshape(-1, 4), "2*n, 2"), stage(lambda x: x.reshape(-1, 4), "4*n, 2")),
        (stage(lambda x: x + 1, "n, n"), stage(lambda x: x + 1, "n, 2*n")),
    ],
    ids=[
        "integer",
        "dtype",
        "power",
        "shape",
        "axis",
        "operand",
        "output",
        "inner literal",
        "inner array",
        "factor",
        "symbolic shape",
    ],
)
def test_what_differs_is_kept_apart(one: ClosedJaxpr, other: ClosedJaxpr) -> None:
    assert groups_of(one, other) == [[0], [1]]


def test_inner_functions_are_compared_by_what_they_compute() -> None:
    @jax.custom_jvp
    def half(x: Any) -> Any:
        return x / 2

    half.defjvp(lambda primals, tangents: (half(*primals), tangents[0] / 2))
    # Traced twice: other names, other objects.
    assert groups_of(stage(lambda x: half(x) + 1, "n"), stage(lambda row: half(row) + 1, "e")) == [[0, 1]]
    assert groups_of(stage(_scan(2), "n"), stage(_scan(2), "n")) == [[0, 1]]


def test_dead_inputs_and_equations_are_left_out() -> None:
    form = canonical(stage(lambda x, y, z: (jnp.exp(y), z + 1)[1], "n", "n", "n"))
    assert form.inputs == (2,)
    assert [equation.primitive.name for equation in form.equations] == ["add"]


def test_literal_and_input_as_outputs() -> None:
    form = canonical(stage(lambda x, y: (y, np.float32(3), x + y), "n", "n"))
    assert sorted(form.outputs) == [0, 1, 2]
    concrete = instantiate(form.function(), {"rows": 2})
    values = [np.full(2, 10.0 ** (k + 1), np.float32) for k in form.inputs]
    found = dict(zip(form.outputs, eval_jaxpr(concrete.jaxpr, (), *values), strict=True))
    np.testing.assert_array_equal(found[0], [100, 100])
    np.testing.assert_array_equal(found[2], [110, 110])
    assert found[1] == 3


def test_refuses_rows_of_two_spaces_and_closed_over_arrays() -> None:
    with pytest.raises(ValueError, match="got the symbols e, n"):
        canonical(stage(lambda x, y: (x + 1, y + 1), "n", "e"))
    table = np.arange(3.0, dtype=np.float32)
    with pytest.raises(ValueError, match="closes over 1 arrays"):
        canonical(stage(lambda x: x + table, "n, 3"))


def test_long_chains() -> None:
    def chain(x: Any) -> Any:
        for _ in range(2000):
            x = jnp.sin(x)
        return x

    assert len(canonical(stage(chain, "n")).equations) == 2000


def test_equal_layers_of_a_deep_model_share() -> None:
    spec = DataSpec((RowSpec("vertex", (6,)),), RowSpec("vertex", (), "int32", "labels"))
    program = trace(GCNII(6, 4, 3, num_layers=16, dropout=0.5, rngs=nnx.Rngs(0)), spec)
    stages = [program.function_of(k) for k, task in enumerate(program.tasks) if task.kind == "stage"]
    groups = share(stages)
    assert len(stages) > 30
    assert len(groups) <= 12
    # β and 1 - β, in the order of the layers.
    largest = max(groups, key=lambda group: len(group.members))
    betas = [min(member.literals) for member in largest.members]
    np.testing.assert_allclose(betas, np.log(0.5 / np.arange(1, 17) + 1)[: len(betas)], rtol=1e-6)
