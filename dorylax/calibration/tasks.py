"""What a task of a pipeline costs that computes next to nothing: inside it, and around it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import optax
from flax import nnx

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, summary
from dorylax.cost.measured import Measurement
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart

_INTERVALS = 16


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements, of one run.

    Args:
        sizes: of the run.
    """

    @cache
    def found() -> dict[str, Measurement]:
        return _measure(sizes.epochs)

    for part in ("inside", "around"):
        yield Step(f"tasks, {part}", partial(lambda part: found()[part], part))


def _measure(epochs: int) -> dict[str, Measurement]:
    """A small GCN on the smallest graph, one task at a time: what is not spent inside tasks is spent around them."""
    data = load("communities", size="tiny")
    assert data.num_classes is not None
    parts = take_apart(GCN(data.num_features, 16, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
    pipeline = Pipeline.of(parts, data, optax.adam(0.01), PipelineConfig(mode="no-pipe", intervals=_INTERVALS))
    spans: list[Span] = []
    run = pipeline.start(parts.params, None, parts.state, trace=spans.append)
    inside: list[float] = []
    around: list[float] = []
    try:
        run.run_epoch()  # compiles
        for _ in range(epochs):
            spans.clear()
            seconds = run.run_epoch().seconds
            busy = sum(span.end - span.start for span in spans)
            inside.append(busy / len(spans))
            around.append((seconds - busy) / len(spans))
    finally:
        run.close()
    return {part: summary("task", values, part=part) for part, values in (("inside", inside), ("around", around))}
