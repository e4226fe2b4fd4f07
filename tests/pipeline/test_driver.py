"""What has no rows, in models whose state changes, against the model itself under `jax.value_and_grad`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from support.pipelines import messy_data, one_compilation, optimizer

from dorylax import ops
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.driver import Driver, DriverFunctions
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.parameters.records import Pulled
from dorylax.pipeline.prepare import prepare
from dorylax.pipeline.run import PipelineEpoch
from dorylax.program.model.base import ModelParts, epoch_rng
from dorylax.program.model.kinds import take_apart
from dorylax.program.model.loss import cross_entropy
from dorylax.program.rows.types import Free, Summed
from dorylax.program.tracing.arguments import training_weights
from dorylax.program.tracing.spec import DataSpec

DATA = messy_data(32, 120)
EPOCHS = 4
compilation = one_compilation(32, 40)


class Keeping(nnx.Module):
    """Two layers around a `rule`, which may use and change `a` (float32 [4]), `b` (int32) and `key`."""

    def __init__(self, rule: Callable[[Keeping, Any, Any], Any]) -> None:
        rngs = nnx.Rngs(3)
        self.enter = nnx.Linear(DATA.num_features, 4, rngs=rngs)
        self.leave = nnx.Linear(4, DATA.num_classes, rngs=rngs)
        self.a, self.b = nnx.BatchStat(jnp.linspace(0.5, 1.0, 4)), nnx.Variable(jnp.int32(2))
        self.key = nnx.Variable(jax.random.key(5))
        self.rule = rule

    def __call__(self, graph: Any, x: Any) -> Any:
        return self.leave(ops.gather(graph, self.rule(self, graph, self.enter(x))))


@jax.custom_vjp
def with_gradient_scaled(h: Any, _: Any) -> Any:
    """`h`, whose gradient is multiplied by the other."""
    return h


with_gradient_scaled.defvjp(lambda h, scale: (h, scale), lambda scale, g: (g * scale, jnp.zeros_like(scale)))


def counted_and_used(model: Keeping, graph: Any, h: Any) -> Any:
    model.b[...] += 1
    return h / model.b[...]


def used_and_counted(model: Keeping, graph: Any, h: Any) -> Any:
    h = h / model.b[...]
    model.b[...] += 1
    return h


def only_counted(model: Keeping, graph: Any, h: Any) -> Any:
    model.b[...] += 1
    return h


def running_mean_used_at_once(model: Keeping, graph: Any, h: Any) -> Any:
    model.a[...] = 0.9 * model.a[...] + 0.1 * jax.lax.stop_gradient(model.enter.kernel[...].mean(axis=0))
    return h - model.a[...]


def with_its_gradient(model: Keeping, graph: Any, h: Any) -> Any:
    """New state that is itself differentiated: the loss depends on it, and it on parameters."""
    new = 0.9 * model.a[...] + 0.1 * model.enter.kernel[...].mean(axis=0)
    model.a[...] = new
    return h - new


def read_in_the_backward_pass(model: Keeping, graph: Any, h: Any) -> Any:
    model.a[...] = model.a[...] * 1.5
    return with_gradient_scaled(h, model.a[...])


def read_in_the_backward_pass_as_it_was(model: Keeping, graph: Any, h: Any) -> Any:
    h = with_gradient_scaled(h, model.a[...])
    model.a[...] = model.a[...] * 1.5
    return h


def literal(model: Keeping, graph: Any, h: Any) -> Any:
    h = h * model.b[...]
    model.b[...] = jnp.int32(7)
    return h


def unchanged(model: Keeping, graph: Any, h: Any) -> Any:
    return h * model.a[...]


def one_of_the_other(model: Keeping, graph: Any, h: Any) -> Any:
    model.b[...] += 1
    model.a[...] = model.a[...] + model.b[...]
    return h * model.a[...]


def a_part_of_the_parameters(model: Keeping, graph: Any, h: Any) -> Any:
    """Nothing of the state before is in it."""
    h = h * model.a[...]
    model.a[...] = model.leave.kernel[...][:, 0]
    return h


def the_old_parameters(model: Keeping, graph: Any, h: Any) -> Any:
    """State that is a parameter as it came."""
    h = h + model.a[...]
    model.a[...] = model.enter.bias[...]
    return h


def drawn_from_a_key(model: Keeping, graph: Any, h: Any) -> Any:
    model.key[...], key = jax.random.split(model.key[...])
    return h + jax.random.normal(key, (4,))


def in_an_edge_stage(model: Keeping, graph: Any, h: Any) -> Any:
    model.a[...] = 0.5 * model.a[...] + 1
    edges = jnp.tanh(ops.scatter_src(graph, h) * model.a[...]) * ops.scatter_dst(graph, h)
    return ops.gather_edges(graph, edges)


def statistic_used_at_once(model: Keeping, graph: Any, h: Any) -> Any:
    """The state is larger by one with every version, by a mean of rows that is computed in the forward pass."""
    model.a[...] += ops.global_mean(graph, 1 + 0 * h)
    return h / model.a[...]


def statistic_of_a_layer_that_reads_state(model: Keeping, graph: Any, h: Any) -> Any:
    h = h * jnp.tanh(model.a[...])
    model.a[...] = 0.9 * model.a[...] + 0.1 * ops.global_mean(graph, h**2)
    model.b[...] += 1
    return h / jnp.sqrt(model.a[...] / model.b[...] + 1)


def expensive(model: Keeping, graph: Any, h: Any) -> Any:
    """What is not made anew in each stage, but once by the driver."""
    model.a[...] = jnp.cumsum(model.a[...] / 4)
    return h * model.a[...]


RULES = [
    counted_and_used,
    used_and_counted,
    only_counted,
    running_mean_used_at_once,
    with_its_gradient,
    read_in_the_backward_pass,
    read_in_the_backward_pass_as_it_was,
    literal,
    unchanged,
    one_of_the_other,
    a_part_of_the_parameters,
    the_old_parameters,
    drawn_from_a_key,
    in_an_edge_stage,
    statistic_used_at_once,
    statistic_of_a_layer_that_reads_state,
    expensive,
]


class LinenKeeping(linen.Module):
    """Counts, keeps a mean and uses both at once."""

    @linen.compact
    def __call__(self, graph: Any, x: Any) -> Any:
        h = linen.Dense(4)(x)
        calls = self.variable("counts", "calls", lambda: jnp.int32(0))
        mean = self.variable("batch_stats", "mean", lambda: jnp.ones(4))
        calls.value = calls.value + 1
        mean.value = 0.5 * mean.value + jnp.sin(calls.value.astype(jnp.float32))
        return linen.Dense(DATA.num_classes)(ops.gather(graph, h * mean.value / calls.value))


def linen_parts() -> ModelParts:
    module = LinenKeeping()
    parts = take_apart(module, DATA.graph, DATA.features)
    variables = dict(module.init(jax.random.key(0), DATA.graph, DATA.features))
    return ModelParts(parts.name, parts.structure, variables.pop("params"), parts.streams, variables)


def alone(parts: ModelParts) -> list[tuple[float, Any, Any]]:
    """Loss, parameters and state of each epoch of the model on one machine."""
    weights = jnp.asarray(training_weights(DATA.train_mask))
    transformation = optimizer()

    @jax.jit
    def step(params: Any, opt_state: Any, state: Any, epoch: Any) -> Any:
        def loss_of(params: Any) -> Any:
            streams = epoch_rng(parts.streams, jnp.uint32(0), epoch)
            output, new = parts.structure.apply_train(params, streams, state, DATA.graph, jnp.asarray(DATA.features))
            return (cross_entropy(output, jnp.asarray(DATA.labels)) * weights).sum(), new

        (loss, new), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, opt_state = transformation.update(gradients, opt_state, params)
        return loss, optax.apply_updates(params, updates), opt_state, new

    params, state = parts.params, parts.state
    opt_state, found = transformation.init(params), []
    for epoch in range(EPOCHS):
        loss, params, opt_state, state = step(params, opt_state, state, jnp.uint32(epoch))
        found.append((float(loss), params, state))
    return found


def pipelined(parts: ModelParts, **options: Any) -> list[PipelineEpoch]:
    pipeline = Pipeline.of(parts, DATA, optimizer(), PipelineConfig(clock="virtual", edge_chunk=40, **options), seed=0)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        return [run.run_epoch() for _ in range(EPOCHS)]


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if jnp.issubdtype(one.dtype, jnp.floating):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            assert (one == other).all()


@pytest.mark.parametrize(
    ("mode", "update"),
    [("pipe", "per_epoch"), ("no-pipe", "per_epoch"), ("async", "per_epoch"), ("async", "per_interval")],
)
def test_state_advances_once_with_every_version(mode: Any, update: Any) -> None:
    """However many intervals there are; and all that they pull is of one version."""
    options: dict[str, Any] = {"servers": 2, "intervals": 2, "mode": mode, "update": update, "sync_every": 3}
    parts = take_apart(Keeping(only_counted), DATA.graph, DATA.features)
    pipeline = Pipeline.of(parts, DATA, optimizer(), PipelineConfig(clock="virtual", edge_chunk=40, **options), seed=0)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        for epoch in range(EPOCHS):
            run.barrier(epoch + 1)
        found = [int(run.run_epoch().state["b"]) for _ in range(EPOCHS)]
    each = 4 if update == "per_interval" else 1
    assert found == [2 + each * epoch for epoch in range(1, EPOCHS + 1)]


@pytest.mark.parametrize("parameter_servers", [1, 3])
@pytest.mark.parametrize(("staleness", "update"), [(0, "per_interval"), (2, "per_interval"), (2, "per_epoch")])
def test_no_update_of_state_is_lost_where_intervals_lag(staleness: int, update: Any, parameter_servers: int) -> None:
    """A stage that uses new state at once has made it of the state that its interval has pulled: of an older version."""
    parts = take_apart(Keeping(statistic_used_at_once), DATA.graph, DATA.features)
    config = PipelineConfig(
        servers=2,
        intervals=2,
        mode="async",
        staleness=staleness,
        update=update,
        parameter_servers=parameter_servers,
        clock="virtual",
        edge_chunk=40,
    )
    pipeline = Pipeline.of(parts, DATA, optimizer(), config, seed=0)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        run.barrier(EPOCHS)
        last = [run.run_epoch() for _ in range(EPOCHS)][-1]
    versions = EPOCHS * (4 if update == "per_interval" else 1)
    np.testing.assert_allclose(last.state["a"], parts.state["a"] + versions, rtol=1e-5)


def test_what_follows_from_state_alone_is_no_statistic() -> None:
    """Else the state of an interval that lags behind would become the next version's."""
    parts = take_apart(Keeping(counted_and_used), DATA.graph, DATA.features)
    plan = prepare(parts, DataSpec.of(DATA), PipelineConfig().passes).plan
    types = plan.program.analysis.types
    steps = [
        dataclasses.replace(step, sums=tuple(var for var in step.writes if isinstance(types[var], Free | Summed)))
        for step in plan.epoch
    ]
    assert any(isinstance(types[var], Free) for step in steps for var in step.sums)
    functions = DriverFunctions(dataclasses.replace(plan, epoch=tuple(steps)))
    assert functions.changing
    assert not functions.statistics


def test_intervals_with_other_versions_have_other_values_in_the_same_epoch() -> None:
    parts = take_apart(Keeping(expensive), DATA.graph, DATA.features)
    prepared = prepare(parts, DataSpec.of(DATA), PipelineConfig().passes)
    given = dict.fromkeys(prepared.driver.constants)
    driver = Driver(prepared.plan, prepared.driver, given, streams=parts.streams, seed=0)
    versions = [Pulled(number, parts.params, {**parts.state, "a": number + parts.state["a"]}) for number in (0, 1, 0)]
    (shown,) = prepared.driver.shown
    found = [np.asarray(driver.values(pulled, 0)[shown]) for pulled in versions]
    assert not np.array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_without_changing_state_nothing_is_advanced() -> None:
    for rule, changing in ((unchanged, 0), (only_counted, 1)):
        parts = take_apart(Keeping(rule), DATA.graph, DATA.features)
        assert len(prepare(parts, DataSpec.of(DATA), PipelineConfig().passes).driver.changing) == changing


@pytest.mark.parametrize("parameter_servers", [1, 3])
@pytest.mark.parametrize("rule", [*RULES, "linen"], ids=lambda rule: getattr(rule, "__name__", rule))
def test_a_model_with_state_is_what_it_is_on_one_machine(rule: Any, parameter_servers: int) -> None:
    parts = linen_parts() if rule == "linen" else take_apart(Keeping(rule), DATA.graph, DATA.features)
    expected = alone(parts)
    records = pipelined(parts, servers=2, intervals=3, parameter_servers=parameter_servers)
    for record, (loss, params, state) in zip(records, expected, strict=True):
        assert record.loss == pytest.approx(loss, rel=1e-5)
        same(record.params, params)
        same(record.state, state)
