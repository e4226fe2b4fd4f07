"""What a run of several updates an epoch makes of schedules, and settings that do not fit the data."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from support.pipelines import make_model, messy_data, one_compilation, optimizer

from dorylax.graph.partition import partition
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.parameters.records import ServerState, Step
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.program.model.flax_nnx import take_apart
from dorylax.settings.errors import ConfigError

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


def scheduled(**options: Any) -> tuple[Pipeline, Any]:
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
    pipeline, parts = scheduled(
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
    pipeline, parts = scheduled(staleness=1)
    with contextlib.closing(pipeline.start(parts.params, None, parts.state)) as run:
        run.run_epoch()
        first = run.synchronise()
        run.barrier(first + 2)
        records = [run.run_epoch() for _ in range(1, first + 2)]
        saved = run.save()
    check(rates, 3 * first + 2)
    last = records[-1]
    trees = jax.tree.map(np.asarray, (last.params, last.opt_state, last.state))
    resumed, _ = scheduled(staleness=1)
    with contextlib.closing(resumed.start(*trees, epoch=first + 2, saved=saved)) as again:
        again.barrier(EPOCHS)
        for _ in range(first + 2, EPOCHS):
            again.run_epoch()
    check(rates, 3 * first + EPOCHS - first)


# Settings that do not fit the data.


def make(model: nnx.Module | None = None, **options: Any) -> Pipeline:
    parts = take_apart(make_model("gcn", GRAPH) if model is None else model)
    return Pipeline.of(parts, GRAPH, optimizer(), PipelineConfig(**options), seed=0)


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"servers": 33}, "servers", "must be ≤ 32, the graph's vertices, got 33"),
        ({"servers": 3, "intervals": 11}, "intervals", "= 11 on 3 servers are 33 intervals, more than .* 32 vertices"),
    ],
)
def test_more_servers_or_intervals_than_vertices(options: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make(**options)
    assert caught.value.key == f"pipeline.{key}"
    assert str(caught.value).startswith(f"pipeline.{key} ")


def test_more_intervals_than_the_smallest_server_has_vertices(tmp_path: Path) -> None:
    uneven = dataclasses.replace(partition(GRAPH.graph, 2, method="range"), parts=(np.arange(32) < 3).astype(np.int32))
    uneven.save(tmp_path / "uneven")
    with pytest.raises(ConfigError, match=r"intervals = 4 do not fit: .*3") as caught:
        make(servers=2, intervals=4, partition=tmp_path / "uneven")
    assert caught.value.key == "pipeline.intervals"


def test_a_partition_of_another_graph(tmp_path: Path) -> None:
    partition(messy_data(32, 121).graph, 2, method="range").save(tmp_path / "other")
    with pytest.raises(ConfigError, match="partition cannot be used") as caught:
        make(servers=2, intervals=2, partition=tmp_path / "other")
    assert caught.value.key == "pipeline.partition"


def test_a_partition_for_another_number_of_servers(tmp_path: Path) -> None:
    partition(GRAPH.graph, 2, method="range").save(tmp_path / "two")
    with pytest.raises(ConfigError, match=r"= 3, but the partition in .*two is for 2") as caught:
        make(servers=3, intervals=2, partition=tmp_path / "two")
    assert caught.value.key == "pipeline.servers"


def test_no_partition_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        make(servers=2, intervals=2, partition=tmp_path / "none")
    assert caught.value.key == "pipeline.partition"


@pytest.mark.parametrize(
    ("optimizer", "counts"),
    [
        (optax.MultiSteps(optax.sgd(0.1), 2).gradient_transformation(), "MultiStepsState.mini_step"),
        (optax.chain(optax.adam(0.1), optax.contrib.reduce_on_plateau()), "ReduceLROnPlateauState.plateau_count"),
    ],
)
def test_an_optimizer_that_counts_steps_where_an_epoch_is_several(optimizer: Any, counts: str) -> None:
    parts = take_apart(make_model("gcn", GRAPH))
    options: dict[str, Any] = {"servers": 2, "intervals": 3, "mode": "async"}
    with pytest.raises(ConfigError) as caught:
        Pipeline.of(parts, GRAPH, optimizer, PipelineConfig(update="per_interval", **options))
    assert caught.value.key == "pipeline.update"
    assert str(caught.value) == (
        f"pipeline.update = per_interval makes 6 steps an epoch, which the optimizer would count as epochs ({counts}): "
        "choose pipeline.update=per_epoch"
    )
    assert Pipeline.of(parts, GRAPH, optimizer, PipelineConfig(**options)).passes
