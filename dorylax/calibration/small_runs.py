"""Small pipelines, and what their epochs show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import optax
from flax import nnx

from dorylax.calibration.steps import Quantity, Step, Values
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.timeline import Resource, Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.serverless.config import TensorConfig


class Small(NamedTuple):
    """A GCN on a generated graph, one task at a time.

    Attributes:
        size: of `communities`.
        hidden: width of the hidden layer.
        intervals: of each server.
        processes: how many servers there are, in processes of their own; 0: one, a thread.
        tensor: where tensor tasks run.
    """

    size: str
    hidden: int
    intervals: int
    processes: int = 0
    tensor: TensorConfig = TensorConfig()

    @property
    def settings(self) -> dict[str, Any]:
        """Of its pipeline, but for `tensor`."""
        hosts = {"servers": self.processes, "hosts": "processes"} if self.processes else {}
        return {"mode": "no-pipe", "intervals": self.intervals, **hosts}

    def epochs(self, number: int) -> Iterator[tuple[float, list[Span]]]:
        """Seconds and tasks of as many epochs, after one that does not count: it compiles."""
        data = load("communities", size=self.size)
        assert data.num_classes is not None
        parts = take_apart(GCN(data.num_features, self.hidden, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0)))
        config = PipelineConfig(tensor=self.tensor, **self.settings)
        pipeline = (HostsPipeline if self.processes else Pipeline).of(parts, data, optax.adam(0.01), config)
        spans: list[Span] = []
        with closing(pipeline.start(parts.params, None, parts.state, trace=spans.append)) as run:
            run.run_epoch()
            for _ in range(number):
                spans.clear()
                yield run.run_epoch().seconds, spans


WORKER = TensorConfig(backend="local", placement="functions", workers=1)
TINY = Small("tiny", 16, 16)
"""Its tasks compute next to nothing."""

Shown = Callable[[float, Sequence[Span]], float]
"""An epoch's seconds and tasks → what it shows."""


def small_run(label: str, of: Small, epochs: int, shows: Mapping[Quantity, Shown]) -> Step:
    """A run of a pipeline.

    Args:
        label: what it is, for a progress bar.
        of: the pipeline.
        epochs: that count.
        shows: what an epoch shows, by what that is.
    """

    def measure() -> Values:
        found: dict[Quantity, list[float]] = {one: [] for one in shows}
        for seconds, spans in of.epochs(epochs):
            for one, shown in shows.items():
                found[one].append(shown(seconds, spans))
        return found

    return Step(label, measure)


def mean_length(spans: Sequence[Span], resource: Resource) -> float:
    """Seconds of a task of a resource, on average."""
    found = [span.end - span.start for span in spans if span.resource == resource]
    return sum(found) / len(found)
