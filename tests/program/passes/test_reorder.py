"""Products move across gathers where that saves bytes, and nothing else changes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import zoo
from support.oracle import assert_same, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.program import Program, optimise, trace
from dorylax.program.model.base import ModelParts
from dorylax.program.passes.reorder import reorder
from dorylax.program.tracing.arguments import RunData

F, C = zoo.F, zoo.C
INPUTS = ("x", "weight", "norm")
Model = Callable[..., Any]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def traced(model: Model, shapes: dict[str, tuple[int, ...]], **options: Any) -> tuple[ModelParts, RunData, Program]:
    case = zoo.Case(lambda dtype: (model, {name: np.zeros(shape, dtype) for name, shape in shapes.items()}), INPUTS)
    parts = zoo.parts_of(case, "float64")
    return parts, zoo.data_of(case, "float64"), trace(parts, zoo.spec_of(case, "float64"), **options)


def executor(program: Program, data: RunData) -> ReferenceExecutor:
    intervals = Intervals.of(data.graph, [0, 3, 12, zoo.V])
    rows = {"vertex": zoo.V, "edge": int(data.graph.num_edges)}
    return ReferenceExecutor(program, data, intervals, compile=interpret, rows=rows)


def assert_exact(program: Program, parts: ModelParts, data: RunData) -> None:
    result = executor(program, data).step(parts.params, parts.streams, parts.state)
    assert_same(result, oracle(parts, data), "float64")


def widths(program: Program, when: str = "epoch", phase: str = "forward") -> list[int]:
    """Columns of the linear gathers."""
    return [
        task.equations[0].outvars[0].aval.shape[-1]
        for task in program.tasks
        if (task.kind, task.when, task.phase) == ("graph", when, phase)
        if task.equations[0].primitive.name in ("dorylax_gather_sum", "dorylax_gather_weighted")
    ]


def products(program: Program) -> int:
    return sum(equation.primitive.name == "dot_general" for equation in program.traced.forward.jaxpr.eqns)


def between(change: Callable[..., Any], fan_in: int, fan_out: int, **more: tuple[int, ...]) -> tuple[Model, Any]:
    """A model of trained rows `[V, fan_in]`, what is tested, and a last layer that nothing can be moved across."""

    def model(p: Any, graph: Any, x: Any, weight: Any, norm: Any) -> Any:
        h = jnp.tanh(x @ p["enter"])
        return jnp.tanh(change(graph, h, p, weight, norm)) @ p["leave"]

    return model, {"enter": (F, fan_in), "w": (fan_in, fan_out), "leave": (fan_out, C), **more}


def _loops(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
    """GCN with implicit loops, published order."""
    scaled = (h @ p["w"]) * norm
    return norm * (ops.gather(g, scaled) + ops.missing_self_loops(g, h.dtype)[:, None] * scaled)


def _propagated(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
    for _ in range(3):
        h = 0.5 * ops.gather(g, h, reduce="mean") + norm * h
    return h @ p["w"]


LATER: dict[str, Callable[..., Any]] = {
    "plain": lambda g, h, p, e, norm: ops.gather(g, h @ p["w"]),
    "scaled on both sides": lambda g, h, p, e, norm: norm * ops.gather(g, norm * (h @ p["w"])),
    "mean": lambda g, h, p, e, norm: ops.gather(g, h @ p["w"], reduce="mean"),
    "weighted": lambda g, h, p, e, norm: ops.gather(g, h @ p["w"], e),
    "loops": _loops,
    "subtraction": lambda g, h, p, e, norm: -(ops.gather(g, h @ p["w"]) - h @ p["w"]),
    "divided": lambda g, h, p, e, norm: ops.gather(g, (h @ p["w"]) / norm) / 3,
}
"""`gather(h W)` in many dresses: one gather, which should come before a matrix that widens."""


@pytest.mark.parametrize("name", LATER)
def test_a_matrix_that_widens_comes_after_the_gather(name: str) -> None:
    parts, data, program = traced(*between(LATER[name], 2, 6))
    assert widths(program) == [6]
    after = reorder(program)
    assert widths(after) == widths(after, phase="backward") == [2]
    assert_exact(after, parts, data)


@pytest.mark.parametrize("name", LATER)
def test_a_matrix_that_narrows_stays_before_the_gather(name: str) -> None:
    _, _, program = traced(*between(LATER[name], 6, 2))
    assert reorder(program).traced is program.traced


@pytest.mark.parametrize(("stale_price", "width"), [(0.0, 2), (0.2, 2), (0.3, F), (9.0, F)])
def test_stale_rows_cost_more(stale_price: float, width: int) -> None:
    """Features are read by one gather; their products with a matrix, made with weights, by two: forwards and backwards."""
    shapes = {"w": (F, 2), "leave": (2, C)}
    parts, data, program = traced(
        lambda p, g, x, weight, norm: jnp.tanh(ops.gather(g, x @ p["w"])) @ p["leave"], shapes
    )
    after = optimise(reorder(program, hoisting=False, stale_price=stale_price), ["prune"])
    assert widths(after) == [width]
    assert widths(after, phase="backward") == ([2] if width == 2 else [])
    assert_exact(after, parts, data)


def test_a_price_changes_nothing_where_rows_are_made_with_weights_either_way() -> None:
    _, _, program = traced(*between(LATER["plain"], 6, 5))
    assert reorder(program, stale_price=9.0).traced is program.traced


EARLIER: dict[str, Callable[..., Any]] = {
    "plain": lambda g, h, p, e, norm: ops.gather(g, h) @ p["w"],
    "scaled on both sides": lambda g, h, p, e, norm: (norm * ops.gather(g, norm * h)) @ p["w"],
    "mean": lambda g, h, p, e, norm: ops.gather(g, h, reduce="mean") @ p["w"],
    "weighted": lambda g, h, p, e, norm: ops.gather(g, h, e) @ p["w"],
    "own row": lambda g, h, p, e, norm: ((1 + p["epsilon"]) * h + ops.gather(g, h)) @ p["w"],
    "wide scale": lambda g, h, p, e, norm: (ops.gather(g, h) * jnp.broadcast_to(norm, h.shape)) @ p["w"],
    "scale made of rows": lambda g, h, p, e, norm: (ops.gather(g, h) * jnp.exp(-norm)[:, :1]) @ p["w"],
    "trained scale": lambda g, h, p, e, norm: (ops.gather(g, h) * h.sum(axis=1, keepdims=True)) @ p["w"],
    "bias after": lambda g, h, p, e, norm: ops.gather(g, h) @ p["w"] + p["bias"],
}
"""`gather(h) W`: one gather, which should come after a matrix that narrows."""


def _more(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {"own row": {"epsilon": ()}, "bias after": {"bias": (width,)}}.get(name, {})


@pytest.mark.parametrize("name", EARLIER)
def test_a_matrix_that_narrows_comes_before_the_gather(name: str) -> None:
    parts, data, program = traced(*between(EARLIER[name], 6, 2, **_more(name, 2)))
    assert widths(program) == [6]
    after = reorder(program)
    assert widths(after) == widths(after, phase="backward") == [2]
    assert products(after) == products(program)
    assert_exact(after, parts, data)


@pytest.mark.parametrize("name", EARLIER)
def test_a_matrix_that_widens_stays_after_the_gather(name: str) -> None:
    _, _, program = traced(*between(EARLIER[name], 2, 6, **_more(name, 6)))
    assert reorder(program).traced is program.traced


def test_a_matrix_crosses_many_gathers_at_once() -> None:
    parts, data, program = traced(*between(_propagated, 6, 2))
    after = reorder(program)
    assert (widths(program), widths(after)) == ([6, 6, 6], [2, 2, 2])
    assert_exact(after, parts, data)


def test_products_with_one_matrix_become_one() -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        return ops.gather(g, h @ p["w"]) + ops.gather(g, jnp.sin(h) @ p["w"], weight) - h @ p["w"]

    parts, data, program = traced(*between(change, 2, 6))
    after = reorder(program)
    assert widths(after) == [2, 2]
    assert products(after) == products(program) - 1
    assert_exact(after, parts, data)


def test_different_matrices_do_not_mix() -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        return ops.gather(g, h @ p["w"] + h @ p["u"])

    _, _, program = traced(*between(change, 2, 6, u=(2, 6)))
    assert reorder(program).traced is program.traced


@pytest.mark.parametrize("sizes", [(2, 6), (6, 2)])
def test_a_matrix_that_two_layers_share(sizes: tuple[int, int]) -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        for _ in range(2):
            early = sizes[0] < sizes[1]
            z = ops.gather(g, h @ p["w"]) if early else ops.gather(g, h, weight) @ p["w"]
            h = jnp.tanh(z) @ p["back"]
        return jnp.tanh(z)

    parts, data, program = traced(*between(change, *sizes, back=sizes[::-1]))
    after = reorder(program)
    assert (widths(program), widths(after)) == ([6, 6], [2, 2])
    assert_exact(after, parts, data)


@pytest.mark.parametrize(("sizes", "name"), [((1, 6), "later"), ((6, 1), "earlier")])
def test_single_columns(sizes: tuple[int, int], name: str) -> None:
    """Where rows have one column, a factor for each row has the rows' own shape."""

    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        if name == "later":
            return norm * ops.gather(g, norm * (h @ p["w"]), weight)
        return (norm * ops.gather(g, norm * h, weight)) @ p["w"]

    parts, data, program = traced(*between(change, *sizes))
    after = reorder(program)
    assert (widths(program), widths(after)) == ([6], [1])
    assert_exact(after, parts, data)


def test_single_columns_of_constant_features() -> None:
    """The product goes behind the gather although that is wider: scaling of one column becomes scaling of several."""

    def model(p: Any, g: Any, x: Any, weight: Any, norm: Any) -> Any:
        return jnp.tanh(norm * ops.gather(g, (x @ p["w"]) * norm) / norm) @ p["leave"]

    parts, data, program = traced(model, {"w": (F, 1), "leave": (1, C)})
    after = optimise(program, ["reorder", "prune", "hoist"])
    assert (widths(after, "once"), widths(after)) == ([F], [])
    assert_exact(after, parts, data)


def test_a_product_of_rows_that_both_depend_on_the_matrix_is_left_alone() -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        z = ops.gather(g, h @ p["w"])
        return z * z[:, :1]

    parts, data, program = traced(*between(change, 2, 6))
    after = reorder(program)
    assert widths(after) == [2]
    assert_exact(after, parts, data)


def test_a_product_that_others_read_is_computed_for_them_too() -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        z = h @ p["w"]
        return ops.gather(g, z) + jnp.sin(z)

    parts, data, program = traced(*between(change, 2, 6))
    after = reorder(program)
    assert widths(after) == [2]
    assert products(after) == products(program) + 1
    assert_exact(after, parts, data)


def test_a_gather_that_others_read_stays() -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        near = ops.gather(g, h)
        return near @ p["w"] + jnp.tanh(near).sum(axis=1, keepdims=True)

    _, _, program = traced(*between(change, 6, 2))
    assert reorder(program).traced is program.traced


KERNELS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda p: p["u"].T,
    "scaled": lambda p: jnp.tanh(p["w"]) * 2,
    "tied": lambda p: p["enter"].T[:, :2],
    "constant": lambda p: np.linspace(-1, 1, 12).reshape(6, 2),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_are_computed(name: str) -> None:
    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        return ops.gather(g, h, weight) @ KERNELS[name](p)

    parts, data, program = traced(*between(change, 6, 2, u=(2, 6)))
    after = reorder(program)
    assert (widths(program), widths(after)) == ([6], [2])
    assert_exact(after, parts, data)


def _layer_of_features(p: Any, g: Any, x: Any, weight: Any, norm: Any) -> Any:
    return jnp.tanh(norm * ops.gather(g, norm * (x @ p["w"]))) @ p["leave"]


def test_features_that_stay_gather_for_nothing_once_they_are_hoisted() -> None:
    parts, data, program = traced(_layer_of_features, {"w": (F, 2), "leave": (2, C)})
    hoisted = optimise(program, ["reorder", "prune", "hoist"])
    assert (widths(hoisted, "once"), widths(hoisted), widths(hoisted, phase="backward")) == ([F], [], [])
    assert_exact(hoisted, parts, data)


def test_without_hoisting_features_gather_in_every_epoch() -> None:
    """Forward at width 5 or at 2; backward not at all or at 2: then 2 and 2 it is."""
    _, _, program = traced(_layer_of_features, {"w": (F, 2), "leave": (2, C)})
    assert reorder(program, hoisting=False).traced is program.traced
    assert optimise(program, ["reorder", "prune"]).traced.forward is program.traced.forward
    # At 4 and 4 the backward gather that is saved pays for the wider one.
    _, _, program = traced(_layer_of_features, {"w": (F, 4), "leave": (4, C)})
    assert widths(reorder(program, hoisting=False)) == [F]


def test_a_sparse_graph_is_not_worth_another_product() -> None:
    """Moving would save bytes and cost two products for one: gathers of so few edges are cheaper."""

    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        z = h @ p["w"]
        return ops.gather(g, z) + jnp.sin(z)

    _, _, program = traced(*between(change, 30, 32))
    assert widths(reorder(_of_size(program, 1000, 100_000))) == [30]
    assert reorder(_of_size(program, 1000, 10)).traced.forward is program.traced.forward


@pytest.mark.parametrize("sizes", [(2, 6), (6, 2)])
def test_without_sizes_a_usual_graph_is_assumed(sizes: tuple[int, int]) -> None:
    change = LATER["plain"] if sizes[0] < sizes[1] else EARLIER["plain"]
    _, _, program = traced(*between(change, *sizes))
    assert widths(reorder(_of_size(program, None, None))) == [2]


def _of_size(program: Program, vertices: int | None, edges: int | None) -> Program:
    spec = dataclasses.replace(program.traced.spec, num_vertices=vertices, num_edges=edges)
    return Program.of(dataclasses.replace(program.traced, spec=spec))


def test_products_that_give_another_dtype_stay() -> None:
    """Gathered before the product, rows would have another dtype than their factors."""

    def change(g: Any, h: Any, p: Any, weight: Any, norm: Any) -> Any:
        narrow = [value.astype(jnp.float32) for value in (h, p["w"])]
        return norm * ops.gather(g, jax.lax.dot(*narrow, preferred_element_type=jnp.float64))

    _, _, program = traced(*between(change, 2, 6))
    assert reorder(program).traced is program.traced


def test_programs_without_a_loss() -> None:
    model, shapes = between(EARLIER["weighted"], 6, 2)
    parts, data, program = traced(model, shapes, loss=None)
    after = reorder(program)
    assert widths(after) == [2]
    output = executor(after, data).output(parts.params, parts.streams, parts.state)
    np.testing.assert_allclose(output, model(parts.params, data.graph, *map(jnp.asarray, data.inputs)), rtol=1e-12)


STEPS: dict[str, Callable[..., Any]] = {
    "gather": lambda g, h, e, norm: ops.gather(g, h),
    "mean": lambda g, h, e, norm: ops.gather(g, h, reduce="mean"),
    "weighted": lambda g, h, e, norm: ops.gather(g, h, e) + h,
    "scale": lambda g, h, e, norm: norm * h,
    "half": lambda g, h, e, norm: -h / 2,
}


@pytest.mark.parametrize("seed", range(30))
def test_the_search_ends_on_linear_chains(seed: int) -> None:
    """A chain of products and gathers ends, no wider than it was and as narrow as the next pass over it would make it."""
    draw = random.Random(seed)
    names = [draw.choice(["product", "product", *STEPS]) for _ in range(6)]
    kernels, width = {}, F
    for k, name in enumerate(names):
        if name == "product":
            kernels[f"w{k}"] = (width, width := draw.choice([1, 2, 4, 5, 7]))

    def model(p: Any, g: Any, x: Any, weight: Any, norm: Any) -> Any:
        h = x
        for k, name in enumerate(names):
            h = h @ p[f"w{k}"] if name == "product" else STEPS[name](g, h, weight, norm)
        return h @ p["leave"]

    parts, data, program = traced(model, kernels | {"leave": (width, C)}, loss=None)
    after = reorder(program, hoisting=seed % 2 == 0)
    again = reorder(Program.of(after.traced), hoisting=seed % 2 == 0)
    assert again.traced is after.traced
    if seed % 3:
        return  # running takes longer than the search
    output = executor(after, data).output(parts.params, parts.streams, parts.state)
    expected = model(parts.params, data.graph, *map(jnp.asarray, data.inputs))
    np.testing.assert_allclose(output, expected, rtol=1e-11, atol=1e-13)
