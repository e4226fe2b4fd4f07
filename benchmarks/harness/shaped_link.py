"""Pipelines whose tensor tasks run in local workers behind a link with a latency and a bandwidth."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import optax
from flax import nnx

from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.program.model.flax_nnx import take_apart
from dorylax.serverless.config import TensorConfig

TINY = {"vertices": 400, "edges": 4000, "hidden": 8, "intervals": 2, "workers": 1, "latency": 0.0, "latency_sigma": 0.0}
"""Sizes that take seconds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The graph, the model, the workers and their link: by default a tenth of reddit-small."""
    parser.add_argument("--size", default="reddit-small", help="of `communities`: its features and classes")
    parser.add_argument("--vertices", type=int, default=23_296)
    parser.add_argument("--edges", type=int, default=11_480_000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--intervals", type=int, default=24)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--graph-threads", type=int, default=1)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds per request")
    parser.add_argument("--latency-sigma", type=float, default=0.0, help="of the logarithm of latencies")
    parser.add_argument("--bandwidth", type=float, default=25e6, help="bytes per second of each worker")


def dataset(settings: argparse.Namespace) -> Dataset:
    """The graph."""
    return load("communities", size=settings.size, num_vertices=settings.vertices, num_edges=settings.edges)


def pipeline(
    data: Dataset, settings: argparse.Namespace, mode: Mapping[str, Any], seed: int = 0, **tensor: Any
) -> Pipeline:
    """A GCN with dropout, by Adam, in one of the pipeline's modes; further settings of `tensor` by name."""
    parts = take_apart(GCN(data.num_features, settings.hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(seed)))
    link = TensorConfig(
        backend="local",
        workers=settings.workers,
        slots=settings.workers,
        latency=settings.latency,
        latency_sigma=settings.latency_sigma,
        bandwidth=settings.bandwidth,
        **{"placement": "functions", **tensor},
    )
    config = PipelineConfig(intervals=settings.intervals, graph_threads=settings.graph_threads, tensor=link, **mode)
    return Pipeline.of(parts, data, optax.adam(0.01), config, seed=seed)
