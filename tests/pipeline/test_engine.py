"""What a run of several updates an epoch makes of schedules."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.pipelines import make_model, messy_data, one_compilation

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.parameters.records import ServerState, Step
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.program.model.flax_nnx import take_apart

GRAPH = messy_data(32, 120)
EPOCHS = 8
RATE = optax.linear_schedule(0.1, 0.02, EPOCHS)
compilation = one_compilation(32, 40)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """The epoch and the learning rate of every update of every parameter server."""
    seen: list[tuple[int, float]] = []
    step = OptimizerStep.__call__

    def watched(self: OptimizerStep, last: ServerState, update: Step) -> ServerState:
        following = step(self, last, update)
        seen.append((update.epoch, float(following.opt_state.hyperparams["learning_rate"])))
        return following

    monkeypatch.setattr(OptimizerStep, "__call__", watched)
    return seen


def make(**options: Any) -> tuple[Pipeline, Any]:
    parts = take_apart(make_model("gcn", GRAPH))
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=RATE)
    given = {"mode": "async", "update": "per_interval", "intervals": 3, "clock": "virtual", "edge_chunk": 40}
    return Pipeline.of(parts, GRAPH, optimizer, PipelineConfig(**given | options), seed=0), parts


def check(rates: list[tuple[int, float]], updates: int) -> None:
    assert len(rates) == updates
    for epoch, rate in rates:
        assert rate == pytest.approx(float(RATE(epoch)), rel=1e-6), epoch


@pytest.mark.parametrize("scaling", [True, False])
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("parameter_servers", [1, 3])
def test_a_schedule_of_eight_epochs_is_one_of_eight_epochs(
    rates: list[tuple[int, float]], staleness: int, parameter_servers: int, *, scaling: bool
) -> None:
    """Not of 2⅔, as it was when three intervals' updates were counted as three epochs."""
    pipeline, parts = make(
        staleness=staleness, parameter_servers=parameter_servers, interval_step_scaling=scaling, sync_every=2
    )
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        run.barrier(EPOCHS)
        for _ in range(EPOCHS):
            run.run_epoch()
    check(rates, EPOCHS * 3 * parameter_servers)


def test_a_schedule_goes_on_where_a_run_becomes_synchronous_and_where_it_is_resumed(
    rates: list[tuple[int, float]],
) -> None:
    pipeline, parts = make(staleness=1)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        run.run_epoch()
        first = run.synchronise()
        run.barrier(first + 2)
        records = [run.run_epoch() for _ in range(1, first + 2)]
        saved = run.save()
    check(rates, 3 * first + 2)
    last = records[-1]
    trees = jax.tree.map(np.asarray, (last.params, last.opt_state, last.state))
    resumed, _ = make(staleness=1)
    with contextlib.closing(resumed.start(*trees, epoch=first + 2, saved=saved)) as again:
        again.barrier(EPOCHS)
        for _ in range(first + 2, EPOCHS):
            again.run_epoch()
    check(rates, 3 * first + EPOCHS - first)
