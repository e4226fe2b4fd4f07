"""Before a pipeline starts: does the configuration fit graph and optimizer, and which vertices go where."""

from __future__ import annotations

import jax
import optax

from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition import Layout, Partition, PartitionError, lay_out, partition
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.parameters.step_counts import uncounted
from dorylax.program.model.base import Tree
from dorylax.settings.errors import ConfigError


def check_counts(config: PipelineConfig, num_vertices: int) -> None:
    """Refuses more servers, or more intervals, than there are vertices.

    Raises:
        ConfigError: names the key.
    """
    if config.servers > num_vertices:
        raise ConfigError.of(
            "pipeline.servers", f"must be ≤ {num_vertices}, the graph's vertices, got {config.servers}"
        )
    if config.intervals * config.servers > num_vertices:
        raise ConfigError.of(
            "pipeline.intervals",
            f"= {config.intervals} on {config.servers} servers are {config.intervals * config.servers} intervals, more "
            f"than the graph's {num_vertices} vertices: give fewer",
        )


def check_optimizer(optimizer: optax.GradientTransformation, params: Tree, config: PipelineConfig) -> None:
    """Refuses to make several steps in an epoch with an optimizer that counts steps.

    Raises:
        ConfigError: names what counts.
    """
    if config.update == "per_interval":
        for count in uncounted(jax.eval_shape(optimizer.init, params)):
            raise ConfigError.of(
                "pipeline.update",
                f"= per_interval makes {config.servers * config.intervals} steps an epoch, which the optimizer would count "
                f"as epochs ({count}): choose pipeline.update=per_epoch",
            )


def layout_for(graph: CompressedGraph, config: PipelineConfig, seed: int) -> Layout:
    """Partitions a graph, or reads its partition, and lays the parts out in intervals.

    Args:
        graph: undivided.
        config: how many servers and intervals, and by which method.
        seed: of methods that draw.

    Raises:
        ConfigError: the graph cannot be divided like that, or a file does not hold its partition.
    """
    try:
        if config.partition is None:
            found = partition(graph, config.servers, method=config.partitioner, balance=config.balance, seed=seed)
        else:
            found = Partition.load(config.partition)
            found.check(graph)
            if found.num_parts != config.servers:
                raise ConfigError.of(
                    "pipeline.servers",
                    f"= {config.servers}, but the partition in {config.partition} is for {found.num_parts}",
                )
    except PartitionError as error:
        raise ConfigError.of(
            "pipeline.partition" if config.partition else "pipeline.partitioner", f"cannot be used: {error}"
        ) from error
    try:
        return lay_out(graph, found, config.intervals)
    except PartitionError as error:
        even = "" if config.partitioner == "range" else ", or pipeline.partitioner=range, whose parts are even"
        raise ConfigError.of("pipeline.intervals", f"= {config.intervals} do not fit: {error}{even}") from error
