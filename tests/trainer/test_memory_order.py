"""No run depends on the order of rows in memory: a model that holds arrays in the user's order never meets another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.errors import InputError
from dorylax.ops.gather import gather
from dorylax.pipeline.config import PipelineConfig
from dorylax.trainer.footprint import of_config

pytestmark = [
    pytest.mark.usefixtures("beyond_cache"),
    pytest.mark.filterwarnings("ignore:.*cannot be split into graph tasks and stages:UserWarning"),
]

EPOCHS = 5


class RawEdges(nnx.Module):
    """Sums over neighbours by the edges' ends, which it holds itself."""

    def __init__(self, data: Any) -> None:
        rows = data.graph.incoming
        self.sources = np.asarray(rows.neighbours)
        self.targets = np.repeat(np.arange(data.graph.num_vertices), np.diff(rows.offsets))
        self.leave = nnx.Linear(data.num_features, data.num_classes, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: jax.Array) -> jax.Array:
        near = jax.ops.segment_sum(x[self.sources], self.targets, num_segments=x.shape[0])
        return self.leave(x + near)


class Table(nnx.Module):
    """Has seen the labels: adds a row of its own for each vertex to the logits."""

    def __init__(self, data: Any) -> None:
        self.seen = 3 * np.eye(data.num_classes, dtype=np.float32)[data.labels]
        self.leave = nnx.Linear(data.num_features, data.num_classes, rngs=nnx.Rngs(0))

    def __call__(self, graph: Any, x: jax.Array) -> jax.Array:
        return self.leave(gather(graph, x)) + self.seen


class TableWhenEvaluated(nnx.Module):
    """Splits when it trains; evaluated, it reads rows of its own."""

    def __init__(self, data: Any) -> None:
        self.seen = 30 * np.eye(data.num_classes, dtype=np.float32)[data.labels]
        self.leave = nnx.Linear(data.num_features, data.num_classes, rngs=nnx.Rngs(0))
        self.deterministic = False

    def __call__(self, graph: Any, x: jax.Array) -> jax.Array:
        logits = self.leave(gather(graph, x))
        return logits + self.seen if self.deterministic else logits


MODELS = [RawEdges, Table, TableWhenEvaluated]


def numbers(result: Any) -> np.ndarray:
    return np.array([(record.loss, record.train_accuracy, record.test_accuracy) for record in result.history])


@pytest.mark.parametrize("model", MODELS)
def test_a_model_with_rows_of_its_own_trains_as_in_the_given_order(trainer, data, model) -> None:
    there, here = (trainer(model=model(data), order=order, epochs=EPOCHS) for order in ("auto", "given"))
    np.testing.assert_allclose(numbers(there.fit()), numbers(here.fit()), rtol=1e-5)
    np.testing.assert_allclose(there.predict(), here.predict(), atol=1e-4)


@pytest.mark.parametrize("before", [False, True], ids=["as built", "reordered before"])
@pytest.mark.parametrize("model", MODELS)
def test_predict_is_what_the_model_gives(trainer, data, model, before) -> None:
    chosen = data.reorder(np.random.default_rng(5).permutation(data.graph.num_vertices)) if before else data
    found = model(chosen)
    runner = trainer(model=found, data=chosen, epochs=EPOCHS)
    runner.fit()
    found.eval()
    np.testing.assert_allclose(runner.predict(), found(chosen.graph, jnp.asarray(chosen.features)), atol=1e-4)


@pytest.mark.parametrize("order", ["auto", "community"])
@pytest.mark.parametrize("before", [False, True], ids=["as built", "reordered before"])
def test_predict_of_a_reordered_run_is_what_the_model_gives(trainer, data, net, shuffled, *, order, before) -> None:
    chosen = data.reorder(np.random.default_rng(5).permutation(data.graph.num_vertices)) if before else data
    model = net(rngs=nnx.Rngs(0))
    runner = trainer(model=model, data=chosen, epochs=EPOCHS, order=order)
    runner.fit()
    assert len(shuffled) == (0 if before and order == "auto" else 1)
    model.eval()
    np.testing.assert_allclose(runner.predict(), model(chosen.graph, jnp.asarray(chosen.features)), atol=1e-4)


@pytest.mark.parametrize("pipeline", [None, PipelineConfig(servers=2, intervals=3)], ids=["one machine", "pipeline"])
def test_an_evaluation_that_cannot_be_split_keeps_the_given_order(trainer, data, shuffled, pipeline) -> None:
    """Training alone splits: its evaluations reach every label by the model's own rows."""
    result = trainer(model=TableWhenEvaluated(data), epochs=2, pipeline=pipeline).fit()
    assert result.passes is not None
    assert result.history[-1].test_accuracy == 1
    assert not shuffled


def test_pipelines_evaluate_in_order_of_communities(trainer, shuffled) -> None:
    config = PipelineConfig(servers=2, intervals=3)
    there, here = (trainer(pipeline=config, order=order, epochs=3) for order in ("auto", "given"))
    np.testing.assert_allclose(numbers(there.fit()), numbers(here.fit()), rtol=1e-5)
    assert len(shuffled) == 1
    np.testing.assert_allclose(there.predict(), here.predict(), atol=1e-4)


@pytest.mark.parametrize(
    ("model", "pipeline"),
    [
        (RawEdges, None),
        (Table, None),
        (TableWhenEvaluated, None),
        (TableWhenEvaluated, PipelineConfig(servers=2, intervals=3)),
    ],
)
def test_communities_are_refused_where_they_cannot_hold(trainer, data, tmp_path, shuffled, *, model, pipeline) -> None:
    runner = trainer(model=model(data), order="community", pipeline=pipeline, run_directory=tmp_path / "run")
    with pytest.raises(InputError, match=r"single\.order=community .*single\.order=given"):
        runner.fit()
    assert not (tmp_path / "run").exists()
    assert not shuffled


@pytest.mark.parametrize(
    "optimizer", [optax.lbfgs(0.1), optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(5))]
)
def test_line_searches_look_at_the_loss_in_the_same_order(trainer, net, shuffled, optimizer) -> None:
    """With dropout too, which is the same in every evaluation of an epoch."""
    runs = [trainer(optimizer=optimizer, order=order, epochs=3).fit() for order in ("community", "given")]
    np.testing.assert_allclose(*map(numbers, runs), rtol=1e-3)
    plain = trainer(optimizer=optimizer, optimize=False, epochs=3).fit()
    np.testing.assert_allclose(numbers(runs[1]), numbers(plain), rtol=1e-3)
    assert len(shuffled) == 1


def test_a_line_search_of_a_model_that_cannot_be_split(trainer, data) -> None:
    runs = [
        trainer(model=Table(data), optimizer=optax.lbfgs(), order=order, epochs=3).fit() for order in ("auto", "given")
    ]
    np.testing.assert_allclose(*map(numbers, runs), rtol=1e-5)


def test_one_data_set_in_both_orders_at_a_time(trainer, data, shuffled) -> None:
    """A trainer that reorders leaves the data as they are for one that must not."""
    reordered, plain = trainer(epochs=EPOCHS), trainer(model=RawEdges(data), epochs=EPOCHS)
    there = [reordered.fit(), plain.fit()]
    assert len(shuffled) == 1
    here = [
        trainer(epochs=EPOCHS, order="given").fit(),
        trainer(model=RawEdges(data), epochs=EPOCHS, order="given").fit(),
    ]
    for found, wanted in zip(there, here, strict=True):
        np.testing.assert_allclose(numbers(found), numbers(wanted), rtol=1e-4)


def test_auto_goes_on_as_the_order_that_it_meant(trainer, data, tmp_path) -> None:
    options = {"run_directory": tmp_path, "resume": True}
    trainer(model=RawEdges(data), epochs=2, order="auto", **options).fit()
    assert trainer(model=RawEdges(data), epochs=3, order="given", **options).fit().first_epoch == 2
    other = {"run_directory": tmp_path / "other", "resume": True}
    trainer(epochs=2, order="auto", **other).fit()
    with pytest.raises(InputError, match=r"settings\.single\.order"):
        trainer(epochs=3, order="given", **other).fit()


OWN = """
import numpy as np
from flax import nnx

class Rows(nnx.Module):
    def __init__(self, in_features, out_features, *, rngs):
        self.leave = nnx.Linear(in_features, out_features, rngs=rngs)

    def __call__(self, graph, x):
        return self.leave(x) + np.arange(1000, dtype=np.float32)[:, None]
"""


@pytest.mark.parametrize("split", [True, False])
def test_an_estimate_reaches_the_same_decision(tmp_path, split) -> None:
    from dorylax.config import RunConfig

    (tmp_path / "rows.py").write_text(OWN)
    name = "gcn" if split else f"{tmp_path / 'rows.py'}:Rows"
    config = RunConfig.resolve({}, {"data.name": "communities", "data.size": "tiny", "model.name": name})
    auto = of_config.estimate(config)
    phases = {phase.name for phase in auto.phases}
    assert ("order" in phases) == split
    explicit = RunConfig.resolve(config.to_dict(), {"single.order": "community"})
    if split:
        assert {phase.name for phase in of_config.estimate(explicit).phases} == phases
    else:
        with pytest.raises(InputError, match=r"single\.order=given"):
            of_config.estimate(explicit)
