"""Notices about a run before it trains: a long compilation, and functions that would be slower or dearer than servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from dorylax.config import RunConfig
from dorylax.cost import find_cluster
from dorylax.graph.data_shape import abstract_data
from dorylax.machine import cores
from dorylax.pipeline.placement import Estimate, Rows
from dorylax.pipeline.prepare import prepared_for
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.stages import StageSizes
from dorylax.trainer.footprint.of_config import abstract_parts, data_shape, of_vertices
from dorylax.trainer.from_config import build_optimizer
from dorylax.trainer.step.objective import Objective

_SECONDS = 10.0


@contextmanager
def compiling(model: str) -> Iterator[None]:
    """Print a notice to stderr if the context, which compiles a model to estimate its memory, takes longer than 10 s."""
    text = (
        f"compiling the training step of {model} to see how much memory it takes: about a minute for a model with dozens of "
        "layers"
    )
    timer = threading.Timer(_SECONDS, click.echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def functions_remark(config: RunConfig) -> str | None:
    """A line if functions would be slower or dearer than the servers alone, by the time model; None otherwise.

    Raises:
        ValueError, OSError: As for `dorylax.trainer.footprint.of_config.estimate`.
    """
    pipeline = config.pipeline
    shape, _ = data_shape(config)
    if pipeline is None or shape is None or not (of_vertices(config) and pipeline.has_functions):
        return None
    data = abstract_data(shape)
    rows_of_loss = Objective.of(None, data).rows
    plan = prepared_for(pipeline, abstract_parts(config, data), data, build_optimizer(config), rows_of_loss).plan
    each = pipeline.servers * pipeline.intervals
    rows = Rows(pipeline.intervals, -(-shape.num_vertices // pipeline.servers), -(-shape.num_edges // pipeline.servers))
    sizes = StageSizes(-(-shape.num_vertices // each), min(pipeline.edge_chunk, -(-shape.num_edges // each)))
    cluster = find_cluster(pipeline.cluster)
    resources = Resources.of(pipeline, cluster if pipeline.clock == "virtual" else None, cores())
    found = Estimate(plan, rows, sizes=sizes, config=pipeline, cluster=cluster, resources=resources)
    return found.remark(pipeline.tensor.placement)
