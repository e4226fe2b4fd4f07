"""Timing runs: the same engine on abstract arrays, to predict the time and cost of a run.

Plan, servers, controllers, autotuners, staleness and parameter servers equal those of any run on the virtual clock. Tasks
compute no values, so the graph is described only by its numbers of rows and edges. Times, bills and spans equal those of the
real run to the last bit, except for the stability gate (`pipeline.stability_gate`): it is always open, because the curvature
is unknown. Losses are unknown, and weights do not change.
"""

from __future__ import annotations

from collections.abc import Sequence

import optax

from dorylax.cost import Cluster, find_cluster
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.shard import AnyShard
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.prepare import prepare
from dorylax.program.model.base import ModelParts
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.program.tracing.spec import DataSpec
from dorylax.settings.errors import ConfigError


def timed_pipeline(
    parts: ModelParts,
    data: Dataset | AbstractData,
    shards: Sequence[AnyShard],
    config: PipelineConfig,
    *,
    cluster: Cluster | None = None,
    loss: RowFunction = cross_entropy,
    seed: int = 0,
) -> Pipeline:
    """Return a pipeline that simulates the time of a run without computing values.

    Args:
        parts: The model.
        data: The data set, or its shapes.
        shards: Shard of each server.
        config: Settings of the pipeline, with the virtual clock.
        cluster: Simulated cluster; None for the cluster named in `config`.
        loss: Loss per vertex, `(output, labels) -> [V]`.
        seed: Seed of virtual latencies.

    Raises:
        ConfigError: The clock is real, or the number of servers differs from the number of shards.
        SplitError: The model cannot be split.
    """
    if config.clock != "virtual":
        raise ConfigError.of("pipeline.clock", f"must be virtual where nothing is computed, got {config.clock}")
    if config.servers != len(shards):
        raise ConfigError.of("pipeline.servers", f"= {config.servers}, but there are shards of {len(shards)}")
    if config.gated:
        config = config.model_copy(update={"stability_gate": False})
    cluster = find_cluster(config.cluster) if cluster is None else cluster
    workers = cluster.functions > 0
    prepared = prepare(
        parts,
        DataSpec.of(data, parts.keywords),
        config.passes_where(ships=cluster.ships),
        loss=loss,
        stale_price=config.expected_stale_price,
        workers=workers,
    )
    return Pipeline(
        prepared=prepared,
        parts=parts,
        loss=loss,
        layout=None,
        pieces=tuple(shards),
        rows=None,
        num_training=0,
        optimizer=optax.set_to_zero(),
        config=config,
        prices=cluster,
        seed=seed,
    )
