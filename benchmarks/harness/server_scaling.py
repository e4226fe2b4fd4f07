"""Epochs on more and more servers, in virtual time, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optax
from flax import nnx

from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart
from harness.critical_path import critical_path

RESOURCES = ("graph", "tensor", "network", "parameters")


def measure(vertices: int, edges: int, hidden: int, *, epochs: int, **options: Any) -> dict[str, Any]:
    """Virtual seconds of an epoch on average, after one that does not count, and where its critical path was.

    Args:
        vertices: of the graph, with the features and classes of `medium`.
        edges: likewise.
        hidden: width.
        epochs: that count.
        options: of `PipelineConfig`.
    """
    data = load("communities", size="medium", num_vertices=vertices, num_edges=edges)
    parts = take_apart(GCN(data.num_features, hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
    config = PipelineConfig(clock="virtual", **options)
    pipeline = Pipeline.of(parts, data, optax.adam(0.01), config)
    spans: list[Span] = []
    run = pipeline.start(parts.params, None, parts.state, trace=spans.append)
    try:
        run.run_epoch()
        begin, before = run.seconds, run.counters()["message_bytes"]
        for _ in range(epochs):
            run.run_epoch()
        end, sent = run.seconds, run.counters()["message_bytes"] - before
    finally:
        run.close()
    path = critical_path(spans, begin, end)
    shares = {resource: path[resource] / (end - begin) for resource in RESOURCES}
    return {
        "servers": config.servers,
        "vertices": vertices,
        "edges": edges,
        "epoch_seconds": (end - begin) / epochs,
        "message_bytes": sent / epochs,
        "path": shares,
        "bottleneck": max(shares, key=lambda resource: shares[resource]),
    }


def plot(path: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Speed-up of the strong series and efficiency of the weak one over servers.

    Args:
        path: of an SVG.
        rows: what `measure` gave, by series.
    """
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    for axis, kind, title in (
        (left, "strong", "speed-up, one graph"),
        (right, "weak", "efficiency, as much per server"),
    ):
        for name, found in rows.items():
            if not name.startswith(kind):
                continue
            servers = [row["servers"] for row in found]
            base = found[0]["epoch_seconds"]
            axis.plot(servers, [base / row["epoch_seconds"] for row in found], "o-", label=name.partition(" ")[2])
        ideal = [row["servers"] / servers[0] if kind == "strong" else 1 for row in found]
        axis.plot(servers, ideal, ":", color="grey", label="ideal")
        axis.set_xscale("log", base=2)
        axis.set_xticks(servers, [str(count) for count in servers])
        axis.set_xlabel("graph servers")
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    left.set_yscale("log", base=2)
    right.set_ylim(0, 1.1)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
