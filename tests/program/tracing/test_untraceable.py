"""Models that do not go together with symbols: what is to blame is named, and what to do."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from dorylax import ops
from dorylax.program import DataSpec, trace
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.passes import optimise
from dorylax.program.rows.errors import RowError
from dorylax.program.tracing.spec import RowSpec

V, E, F, C = 12, 20, 3, 2
SPEC = DataSpec((RowSpec("vertex", (F,)),), RowSpec("vertex", (), "int32", "labels"), num_vertices=V, num_edges=E)
RNG = np.random.default_rng(0)
PERMUTATION = RNG.permutation(V)
COLUMN = RNG.normal(size=(V, 1)).astype(np.float32)
EDGES = RNG.normal(size=E).astype(np.float32)
LABELS = jnp.asarray(RNG.integers(0, C, V))
PARAMS = {"w": jnp.ones((F, C)), "table": jnp.ones((V, F)), "edges": jnp.ones((E, 1)), "scale": jnp.ones(V)}


def _refusal(model: Callable[..., Any], spec: DataSpec = SPEC, **options: Any) -> str:
    with pytest.raises(SplitError) as caught:
        trace(model, spec, params=PARAMS, **options)
    return str(caught.value)


def _line(fun: Callable[..., Any], marker: str) -> str:
    """Where a marked line is, as messages say it."""
    lines, first = inspect.getsourcelines(fun)
    offset = next(k for k, line in enumerate(lines) if marker in line)
    return f"at test_untraceable.py:{first + offset} ({fun.__qualname__})"


# Parameters with a row for each vertex or edge.


def added(params, graph, x):
    return (x + params["table"]) @ params["w"]  # here


def concatenated(params, graph, x):
    return jnp.concatenate([x, params["table"]], axis=1)[:, :F] @ params["w"]  # here


def gathered(params, graph, x):
    return ops.gather(graph, params["table"] * 2) @ params["w"]  # here


def transformed(params, graph, x):
    h = params["table"] @ params["w"]
    return x @ params["w"] + jnp.tanh(h)  # here


def returned(params, graph, x):
    return params["table"] @ params["w"]


@pytest.mark.parametrize("model", [added, concatenated, gathered, transformed, returned])
def test_a_table_is_an_embedding(model: Callable[..., Any]) -> None:
    text = _refusal(model)
    assert "the parameter table [12, 3] has a row for each vertex. Look its rows up by id: " in text
    assert "nnx.Embed(num_embeddings=12, features=3) called with dorylax.ops.vertex_ids(graph), or table[" in text
    assert model is returned or _line(model, "# here") in text


def test_a_scalar_for_each_vertex_and_a_row_for_each_edge() -> None:
    text = _refusal(lambda params, graph, x: (x * params["scale"][:, None]) @ params["w"])
    assert "the parameter scale [12] has a row for each vertex" in text
    assert "nnx.Embed(num_embeddings=12, features=1)" in text
    text = _refusal(
        lambda params, graph, x: ops.gather_edges(graph, ops.scatter_src(graph, x) * params["edges"]) @ params["w"]
    )
    assert "the parameter edges [20, 1] has a row for each edge" in text
    assert "called with dorylax.ops.edge_ids(graph)" in text


class Table(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(jnp.zeros((V, F)))
        self.last = nnx.Linear(F, C, rngs=rngs)

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.last(x + self.table)


class LinenTable(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        return linen.Dense(C)(x + self.param("table", linen.initializers.zeros, (V, F)))


@pytest.mark.parametrize("model", [Table(rngs=nnx.Rngs(0)), LinenTable()], ids=["nnx", "linen"])
def test_a_table_of_a_module(model: Any) -> None:
    with pytest.raises(SplitError, match=r"the parameter table \[12, 3\] has a row for each vertex\. .*nnx\.Embed"):
        trace(model, SPEC)


def test_what_is_advised_works() -> None:
    """The table by ids, closed-over class weights, and a kernel that happens to have V rows."""
    trace(lambda params, graph, x: (x + params["table"][ops.vertex_ids(graph)]) @ params["w"], SPEC, params=PARAMS)
    weights = jnp.asarray([0.3, 0.7])

    def loss(output: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(output, labels) * weights[labels]

    trace(lambda params, graph, x: x @ params["w"], SPEC, params=PARAMS, loss=loss)


def test_a_kernel_with_as_many_rows_is_not_to_blame() -> None:
    square = DataSpec((RowSpec("vertex", (V,)),), SPEC.labels, num_vertices=V, num_edges=E)
    text = _refusal(lambda params, graph, x: (x @ params["table"] * COLUMN) @ params["w"], square)
    assert "parameter" not in text
    assert "An array with a row per vertex that the model closes over must be an input of the model" in text


# Arithmetic with sizes.


@pytest.mark.parametrize(
    "scaled",
    [lambda h: h / math.sqrt(h.shape[0]), lambda h: h * h.shape[0] ** -0.5],
    ids=["math.sqrt", "a power"],
)
def test_arithmetic_with_the_number_of_vertices_is_that_of_arrays(scaled: Callable[..., Any]) -> None:
    text = _refusal(lambda params, graph, x: scaled(x @ params["w"]))
    assert "jnp.sqrt(x.shape[0]), not math.sqrt or x.shape[0] ** 0.5" in text
    trace(lambda params, graph, x: x @ params["w"] / jnp.sqrt(x.shape[0]), SPEC, params=PARAMS)


def test_a_squeeze_without_an_axis() -> None:
    text = _refusal(lambda params, graph, x: x @ params["w"] * (x @ params["w"][:, :1]).squeeze()[:, None])
    assert "say which axes it means, as in x.squeeze(-1)" in text


# Indexing.


def by_permutation(params, graph, x):
    shuffled = x[PERMUTATION]  # here
    h = jnp.tanh(shuffled @ params["w"])
    return ops.gather(graph, h)


def by_take(params, graph, x):
    h = jnp.take(x @ params["w"], jnp.asarray(PERMUTATION), axis=0)  # here
    return x @ params["w"] + h


def by_random_permutation(params, graph, x):
    h = x[jax.random.permutation(jax.random.key(0), V)]  # here
    return ops.gather(graph, h @ params["w"])


def by_sources(params, graph, x):
    sources = x[np.zeros(E, np.int32)]  # here
    return jax.ops.segment_sum(sources, np.zeros(E, np.int32), num_segments=V) @ params["w"]


def of_edges(params, graph, x):
    messages = ops.scatter_src(graph, x)[np.arange(E)[::-1]]  # here
    return ops.gather_edges(graph, messages) @ params["w"]


@pytest.mark.parametrize("model", [by_permutation, by_take, by_random_permutation, by_sources, of_edges])
def test_indexing_is_blamed_where_it_is_written(model: Callable[..., Any]) -> None:
    with pytest.raises(RowError) as caught:
        trace(model, SPEC, params=PARAMS)
    space = "edge" if model is of_edges else "vertex"
    assert f"indexing of the {space} axis [gather, {_line(model, '# here')}]" in str(caught.value)


def by_input(params, graph, x, places):
    shuffled = x[places]  # here
    return ops.gather(graph, shuffled @ params["w"])


def test_indexing_by_an_input_is_blamed_where_it_is_written() -> None:
    spec = DataSpec((*SPEC.inputs, RowSpec("vertex", (), "int32")), SPEC.labels, num_vertices=V, num_edges=E)
    assert f"indexing of the vertex axis [gather, {_line(by_input, '# here')}]" in _refusal(by_input, spec)


# Arrays that are closed over, and sizes.


@pytest.mark.parametrize(
    ("model", "space"),
    [
        (lambda params, graph, x: jnp.where(COLUMN > 0, x, 0) @ params["w"], "vertex"),
        (lambda params, graph, x: ops.gather(graph, jnp.asarray(COLUMN)) + x @ params["w"], "vertex"),
        (lambda params, graph, x: ops.gather(graph, x, EDGES) @ params["w"], "edge"),
        (lambda params, graph, x: (x * jnp.ones((V, 1))) @ params["w"], "vertex"),
        (lambda params, graph, x: x @ params["w"] / jnp.bincount(LABELS, length=C)[LABELS][:, None], "vertex"),
    ],
    ids=["mask", "gathered", "edge weights", "a size", "class sizes"],
)
def test_arrays_of_the_data_are_inputs(model: Callable[..., Any], space: str) -> None:
    text = _refusal(model)
    assert f'Dataset(…, {space}_inputs={{"name": array}}) and def __call__(self, graph, x, *, name)' in text
    size = "x.shape[0]" if space == "vertex" else "graph.num_edges"
    assert text.endswith(f"One that the model makes itself takes its size from {size}")
    assert "at test_untraceable.py:" in text


def test_rows_that_are_kept_as_state() -> None:
    class Memory(nnx.Module):
        def __init__(self) -> None:
            self.last = nnx.Linear(F, C, rngs=nnx.Rngs(0))
            self.rows = nnx.Variable(jnp.zeros((V, F)))

        def __call__(self, graph: Any, x: Any) -> Any:
            return self.last(x + self.rows[...])

    with pytest.raises(SplitError, match=r"keeps a row for each vertex as its state rows: .*vertex_inputs"):
        trace(Memory(), SPEC)


def test_where_sizes_are_not_known_the_text_of_the_error_has_to_do() -> None:
    unknown = DataSpec(SPEC.inputs, SPEC.labels)
    text = _refusal(added, unknown)
    assert _line(added, "# here") in text
    assert "Numbers of vertices and edges are symbols (n, e)" in text


# What is the model's own error.


def _asserting(params, graph, x):
    assert x.shape[1] == 7, "odd width"
    return x @ params["w"]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (lambda params, graph, x: jnp.concatenate([x, x], axis=1) @ params["w"], TypeError),
        (lambda params, graph, x: x @ params["v"], KeyError),
        (lambda params, graph, x: x.T @ params["w"], TypeError),
        (lambda params, graph, x: x @ params["w"] / (1 // 0), ZeroDivisionError),
        (lambda params, graph, x: x @ params["w"] if x.sum() > 0 else x, jax.errors.TracerBoolConversionError),
        (lambda params, graph, x: jnp.einsum("vf,gc->vc", x, params["w"][0]), ValueError),
        (_asserting, AssertionError),
    ],
)
def test_what_fails_on_numbers_too_stays_what_it_is(model: Callable[..., Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        trace(model, SPEC, params=PARAMS)
    assert not isinstance(caught.value, SplitError)
    (note,) = [one for one in caught.value.__notes__ if "JAX" not in one]  # JAX says that it hides its frames
    assert re.match(r"in \S*test_untraceable\.py:\d+ \(", note)
    assert "(n" not in str(caught.value)  # the numbers are those of the data


def test_what_fails_on_symbols_alone_is_a_refusal_whatever_is_raised() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        assert x.shape[0] == V
        return x @ params["w"]

    text = _refusal(model)
    assert text.startswith("cannot trace the model, at test_untraceable.py:")
    assert "AssertionError" in text


# Losses by class, and effects.


def by_class_size(output, labels):
    sizes = jnp.bincount(labels, length=C)  # here
    return optax.softmax_cross_entropy_with_integer_labels(output, labels) * (V / (C * sizes))[labels]


def by_one_hot(output, labels):
    sizes = jax.nn.one_hot(labels, C).sum(axis=0)  # here
    return optax.softmax_cross_entropy_with_integer_labels(output, labels) / sizes[labels]


@pytest.mark.parametrize("loss", [by_class_size, by_one_hot])
def test_class_sizes_are_counted_once(loss: Callable[..., Any]) -> None:
    program = optimise(trace(lambda params, graph, x: x @ params["w"], SPEC, params=PARAMS, loss=loss))
    assert [task.when for task in program.tasks if task.kind == "sum"] == ["once"]


def test_what_depends_on_labels_alone_and_is_no_sum() -> None:
    def loss(output: Any, labels: Any) -> Any:
        rank = jnp.argsort(labels)  # here
        return optax.softmax_cross_entropy_with_integer_labels(output, labels) * rank

    text = _refusal(lambda params, graph, x: x @ params["w"], loss=loss)
    assert _line(loss, "# here") in text
    assert text.endswith(
        "It depends on data alone, so compute it beforehand with NumPy and close over the result: class weights, for "
        "instance, are an array [C], which loss= multiplies by as weights[labels]."
    )


def test_what_the_model_computes_is_not_data_alone() -> None:
    def loss(output: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(output, labels) * jnp.argsort(output[:, 0])

    assert "beforehand with NumPy" not in _refusal(lambda params, graph, x: x @ params["w"], loss=loss)


@pytest.mark.parametrize("show", [lambda x: jax.debug.print("{}", x), lambda x: jax.debug.callback(id, x)])
def test_prints_that_will_not_happen_are_told(show: Callable[[Any], None]) -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        show(x)
        return x @ params["w"]

    with pytest.warns(UserWarning, match=r"debug_\w+, at test_untraceable.* does nothing .*no pipeline"):
        trace(model, SPEC, params=PARAMS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda params, graph, x: x @ params["w"], SPEC, params=PARAMS)


def test_a_model_that_splits_is_traced_on_symbols_alone() -> None:
    calls: list[Any] = []

    def model(params: Any, graph: Any, x: Any) -> Any:
        calls.append(x.shape[0])
        return x @ params["w"]

    trace(model, SPEC, params=PARAMS)
    assert len(calls) == 1
