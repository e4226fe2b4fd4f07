from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
from flax import nnx
from support.pipelines import make_model, messy_data, optimizer

from dorylax.graph.partition import partition
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program.model.flax_nnx import take_apart
from dorylax.settings.errors import ConfigError

GRAPH = messy_data(32, 120)


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
