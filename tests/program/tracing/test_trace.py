"""Models of every kind become programs, and what cannot is refused with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from support.graphs import messy_graph
from support.linen_models import LinenGCN
from support.oracle import assert_same, oracle
from support.reference import Intervals, ReferenceExecutor, interpret

from dorylax import ops
from dorylax.program.jaxpr.errors import SplitError
from dorylax.program.model.kinds import take_apart
from dorylax.program.program import Program, trace
from dorylax.program.tracing.arguments import RunData, training_weights
from dorylax.program.tracing.spec import DataSpec, RowSpec

V, E, F, C = 12, 20, 3, 2
GRAPH = messy_graph(V, E)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(V, F)).astype(np.float32)
LABELS = RNG.integers(0, C, V).astype(np.int32)
DATA = RunData(GRAPH, (X,), LABELS, training_weights(np.arange(V) % 3 > 0))
SPEC = DataSpec((RowSpec("vertex", (F,)),), RowSpec("vertex", (), "int32", "labels"), num_vertices=V, num_edges=E)
PARAMS = {"w": RNG.normal(size=(F, C)).astype(np.float32)}
WHOLE: dict[Any, int] = {"vertex": V, "edge": E}
UNEVEN = (0, 2, 3, 9, V)


def executor_of(program: Program, data: RunData = DATA) -> ReferenceExecutor:
    return ReferenceExecutor(program, data, Intervals.of(GRAPH, UNEVEN), compile=interpret, rows=WHOLE)


def filled(tree: Any) -> Any:
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), tree)


class Nnx(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.enter = nnx.Linear(F, C, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, graph: Any, x: Any) -> Any:
        self.calls[...] += 1
        return self.drop(ops.gather(graph, self.enter(self.drop(x))))


class Linen(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, train: bool = False) -> Any:
        h = linen.Dropout(0.5, deterministic=not train)(linen.Dense(C)(x))
        return ops.gather(graph, h)


def plain(params: Any, graph: Any, x: Any) -> Any:
    return ops.gather(graph, x @ params["w"])


def random(params: Any, graph: Any, x: Any, *, key: Any, train: bool) -> Any:
    h = x @ params["w"]
    return ops.gather(graph, h * jax.random.bernoulli(key, 0.5, h.shape) if train else h)


@pytest.mark.parametrize(
    "model",
    [Nnx(), LinenGCN((C,)), Linen(), plain, random],
    ids=["NNX", "Linen deterministic", "Linen train", "function", "function with key"],
)
def test_every_kind_trains_and_predicts_as_it_is(model: Any) -> None:
    parts = take_apart(model, GRAPH, X, params=PARAMS)
    params = filled(parts.params)
    program = trace(model, SPEC, params=PARAMS)
    executor = executor_of(program)
    results = [executor.step(params, parts.streams, parts.state, seed=1, epoch=epoch) for epoch in (5, 5, 6)]
    parts = type(parts)(parts.name, parts.structure, params, parts.streams, parts.state)
    assert_same(results[0], oracle(parts, DATA, seed=1, epoch=5), "float32")
    # Counters are those of the epoch: the same epoch repeats, whatever ran before; another one differs.
    assert float(results[0].loss) == float(results[1].loss)
    assert (float(results[0].loss) != float(results[2].loss)) == (model is not plain)
    exact = executor_of(trace(model, SPEC, params=PARAMS, loss=None)).output(params, parts.streams, parts.state)
    expected = parts.structure.apply_evaluate(params, parts.streams, parts.state, GRAPH, X)
    np.testing.assert_allclose(exact, expected, rtol=1e-5, atol=1e-5)


class HandingOn(nnx.Module):
    """Its new state is something that is there already: other state, a parameter, or the state itself."""

    def __init__(self) -> None:
        self.enter = nnx.Linear(F, C, rngs=nnx.Rngs(0))
        self.now, self.before = nnx.Variable(jnp.float32(2)), nnx.Variable(jnp.float32(1))
        self.bias, self.same = nnx.Variable(jnp.ones(C)), nnx.Variable(jnp.float32(5))

    def __call__(self, graph: Any, x: Any) -> Any:
        self.now[...], self.before[...] = self.before[...], self.now[...]
        self.bias[...] = self.enter.bias[...]
        self.same[...] = self.same[...]
        return self.enter(x)


def test_state_that_becomes_other_state_or_a_parameter() -> None:
    parts = take_apart(HandingOn(), GRAPH, X)
    program = trace(HandingOn(), SPEC)
    changing = [output.name for output in program.traced.outputs if output.role == "state"]
    assert changing == ["before", "bias", "now"]
    new = executor_of(program).step(parts.params, parts.streams, parts.state).state
    _, expected = parts.structure.apply_train(parts.params, parts.streams, parts.state, GRAPH, X)
    for name, value in expected.items():
        np.testing.assert_array_equal(new[name], value)


class Normed(linen.Module):
    @linen.compact
    def __call__(self, graph: Any, x: Any, train: bool) -> Any:
        return linen.Dense(C)(linen.BatchNorm(use_running_average=not train)(ops.gather(graph, x)))


def test_batch_norm_meets_in_training_only() -> None:
    assert any(task.kind == "sum" for task in trace(Normed(), SPEC).tasks)
    assert not any(task.kind == "sum" for task in trace(Normed(), SPEC, loss=None).tasks)


class Summing(nnx.Module):
    def __init__(self) -> None:
        self.enter = nnx.Linear(F, C, rngs=nnx.Rngs(0))
        self.total = nnx.Variable(jnp.zeros(F))

    def __call__(self, graph: Any, x: Any) -> Any:
        self.total[...] = x.sum(axis=0)
        return self.enter(x)


class Remembering(nnx.Module):
    def __init__(self) -> None:
        self.enter = nnx.Linear(F, C, rngs=nnx.Rngs(0))
        self.last = nnx.Variable(jnp.zeros(()))

    def __call__(self, graph: Any, x: Any) -> Any:
        self.last.set_value(x[:, 0])
        return self.enter(x)


def test_a_sum_as_state_is_whole() -> None:
    parts = take_apart(Summing(), GRAPH, X)
    state = executor_of(trace(Summing(), SPEC)).step(parts.params, parts.streams, parts.state).state
    np.testing.assert_allclose(state["total"], X.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_state_may_not_be_made_of_rows() -> None:
    with pytest.raises(SplitError, match="the model keeps a row for each vertex as its state last"):
        trace(Remembering(), SPEC)


def test_an_output_that_is_a_sum_is_whole() -> None:
    """A readout of the whole graph."""
    program = trace(lambda params, graph, x: (x @ params["w"]).sum(axis=0), SPEC, params=PARAMS, loss=None)
    found = executor_of(program).output(PARAMS, {}, {})
    np.testing.assert_allclose(found, (X @ PARAMS["w"]).sum(axis=0), rtol=1e-5, atol=1e-5)


def test_closed_over_arrays_become_inputs() -> None:
    small, large = np.arange(C, dtype=np.float32), RNG.normal(size=(50, 40)).astype(np.float32)

    def model(params: Any, graph: Any, x: Any) -> Any:
        table = jnp.asarray(large)
        return ops.gather(graph, x @ params["w"] + small) + table[ops.vertex_ids(graph), :C]

    program = trace(model, SPEC, params=PARAMS)
    constants = [entry.name for entry in program.traced.inputs if entry.role == "constant"]
    assert sorted(constant.size for constant in program.traced.constants) == [C, large.size]
    assert constants == ["constant 0", "constant 1"]
    assert program.traced.step.consts == []
    assert_same(
        executor_of(program).step(PARAMS, {}, {}),
        oracle(take_apart(model, GRAPH, X, params=PARAMS), DATA),
        "float32",
    )


@pytest.mark.parametrize(
    ("loss", "shape"), [(lambda output, labels: output, "(n, 2)"), (lambda output, labels: output.mean(), "()")]
)
def test_a_loss_is_a_number_for_each_vertex(loss: Callable[..., Any], shape: str) -> None:
    with pytest.raises(ValueError, match=r"must give one number per vertex, shape \[V\]") as caught:
        trace(plain, SPEC, params=PARAMS, loss=loss)
    assert f"got {shape}: return the loss of each vertex" in str(caught.value)


def test_a_loss_of_counts_has_no_gradient() -> None:
    with pytest.raises(ValueError, match="loss"):
        trace(plain, SPEC, params=PARAMS, loss=lambda output, labels: output.argmax(axis=1) != labels)


def test_metrics_are_sums_over_the_vertices_that_count() -> None:
    def metrics(output: Any, labels: Any) -> Any:
        return {"all": jnp.ones_like(labels), "squares": output**2}

    result = executor_of(trace(plain, SPEC, params=PARAMS, metrics=metrics)).step(PARAMS, {}, {})
    counted = np.asarray(DATA.weights) > 0
    assert int(result.metrics["counts"]["all"]) == counted.sum()
    expected = (np.asarray(plain(PARAMS, GRAPH, X))[counted] ** 2).sum(axis=0)
    np.testing.assert_allclose(result.metrics["counts"]["squares"], expected, rtol=1e-5)
    assert executor_of(trace(plain, SPEC, params=PARAMS, metrics=None)).step(PARAMS, {}, {}).metrics == {}


def test_metrics_may_be_hits() -> None:
    hits = trace(plain, SPEC, params=PARAMS, metrics=lambda output, labels: output.argmax(axis=1) == labels)
    result = executor_of(hits).step(PARAMS, {}, {})
    counted = np.asarray(DATA.weights) > 0
    expected = (np.asarray(plain(PARAMS, GRAPH, X)).argmax(axis=1) == LABELS)[counted].sum()
    assert int(result.metrics["counts"]) == expected


@pytest.mark.parametrize(
    "model",
    [
        lambda params, graph, x: x @ params["w"] if x.shape[0] > 10 else x,
        lambda params, graph, x: sum(x[k] for k in range(x.shape[0])) @ params["w"] + x @ params["w"],
        lambda params, graph, x, key: jax.random.permutation(key, x) @ params["w"],
        lambda params, graph, x: jnp.prod(x @ params["w"], axis=0) + x @ params["w"],
    ],
    ids=["compares", "loops", "permutes", "multiplies"],
)
def test_what_cannot_be_traced_or_split_is_one_kind_of_error(model: Any) -> None:
    """Callers train such a model as one function instead, so all must be told by their type."""
    with pytest.raises(SplitError):
        trace(model, SPEC, params=PARAMS)


def test_a_parameter_that_nobody_uses_has_the_gradient_zero() -> None:
    params = {**PARAMS, "array": np.ones((2, 3), np.float32)}
    result = executor_of(trace(plain, SPEC, params=params)).step(params, {}, {})
    assert result.gradients["array"].shape == (2, 3)
    assert not np.asarray(result.gradients["array"]).any()


def test_parameters_are_real_numbers() -> None:
    params = {**PARAMS, "k": np.arange(3)}
    with pytest.raises(TypeError, match=r"parameter k is int\d+, which has no gradient"):
        trace(lambda p, graph, x: ops.gather(graph, x @ p["w"]) + p["k"].sum(), SPEC, params=params)
