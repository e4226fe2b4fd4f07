"""What a task of a pipeline costs that computes next to nothing: inside it, and around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any, NamedTuple

import optax
from flax import nnx

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, summary
from dorylax.cost.measured import Measurement
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.timeline import Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.serverless.config import TensorConfig

PARTS = ("inside", "tensor", "around")
"""Of tasks: inside those of graph servers, inside tensor tasks, around either."""


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements, of one run.

    Args:
        sizes: of the run.
    """

    @cache
    def found() -> dict[str, Measurement]:
        return _measure(sizes.epochs)

    for part in PARTS:
        yield Step(f"tasks, {part}", partial(lambda part: found()[part], part))


def _measure(epochs: int) -> dict[str, Measurement]:
    """One task at a time: what is not spent inside tasks is spent around them."""
    taken: dict[str, list[float]] = {part: [] for part in PARTS}
    for seconds, spans in small_epochs(epochs, TensorConfig()):
        inside, tensor = lengths(spans, "graph"), lengths(spans, "tensor")
        taken["inside"].append(sum(inside) / len(inside))
        taken["tensor"].append(sum(tensor) / len(tensor))
        taken["around"].append((seconds - sum(span.end - span.start for span in spans)) / len(spans))
    return {part: summary("task", values, part=part) for part, values in taken.items()}


def lengths(spans: Sequence[Span], resource: str) -> list[float]:
    """Seconds of each task of a resource."""
    return [span.end - span.start for span in spans if span.resource == resource]


class Small(NamedTuple):
    """A GCN on a generated graph, one task at a time.

    Attributes:
        size: of `communities`.
        hidden: width of the hidden layer.
        intervals: of each server.
        processes: how many servers there are, in processes of their own; 0: one, a thread.
    """

    size: str
    hidden: int
    intervals: int
    processes: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """Of its pipeline."""
        hosts = {"servers": self.processes, "hosts": "processes"} if self.processes else {}
        return {"mode": "no-pipe", "intervals": self.intervals, **hosts}


TINY = Small("tiny", 16, 16)
"""Its tasks compute next to nothing."""


def small_epochs(epochs: int, tensor: TensorConfig, of: Small = TINY) -> Iterator[tuple[float, list[Span]]]:
    """Seconds and tasks of epochs.

    Args:
        epochs: how many, after one that does not count.
        tensor: where tensor tasks run.
        of: what is trained.
    """
    data = load("communities", size=of.size)
    assert data.num_classes is not None
    parts = take_apart(GCN(data.num_features, of.hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
    config = PipelineConfig(tensor=tensor, **of.settings)
    pipeline = (HostsPipeline if of.processes else Pipeline).of(parts, data, optax.adam(0.01), config)
    spans: list[Span] = []
    with closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as run:
        run.run_epoch()  # compiles
        for _ in range(epochs):
            spans.clear()
            yield run.run_epoch().seconds, spans
