"""Small pipelines that show the time of tasks: of tasks that compute next to nothing, and of tasks on a graph of some size.

The latter take longer than the same work in a loop: no cache has their data, results go to new memory, cores may have slept.
A simulation of the same runs gives the ratio (`dorylax.simulation.here`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import optax
from flax import nnx

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Quantity, Step, Values, quantity
from dorylax.graph.datasets import load
from dorylax.layers import GCN
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.engine import Pipeline
from dorylax.pipeline.hosts.pipeline import HostsPipeline
from dorylax.pipeline.timeline import Resource, Span
from dorylax.program.model.flax_nnx import take_apart
from dorylax.serverless.config import TensorConfig


class SmallRun(NamedTuple):
    """A GCN on a generated graph, one task at a time.

    Attributes:
        size: Size of `communities`.
        hidden: Width of the hidden layer.
        intervals: Intervals of each server.
        processes: Number of servers in separate processes; 0: one server, a thread.
        tensor: Settings of tensor tasks.
    """

    size: str
    hidden: int
    intervals: int
    processes: int = 0
    tensor: TensorConfig = TensorConfig()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the pipeline, without `tensor`."""
        hosts = {"servers": self.processes, "hosts": "processes"} if self.processes else {}
        return {"mode": "no-pipe", "intervals": self.intervals, **hosts}

    def epochs(self, number: int) -> Iterator[tuple[float, list[Span]]]:
        """Yield seconds and tasks of so many epochs, after one that compiles and does not count."""
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


_WORKER = TensorConfig(backend="local", placement="functions", workers=1)
TINY = SmallRun("tiny", 16, 16)
THREADS = SmallRun("small", 64, 4)
WORKERS = THREADS._replace(tensor=_WORKER)
PROCESSES = SmallRun("small", 64, 2, processes=2)


class Reference(NamedTuple):
    """The tasks of a resource in a reference run."""

    of: SmallRun
    resource: Resource


REFERENCES: Mapping[str, Reference] = {
    "graph": Reference(THREADS, "graph"),
    "tensor": Reference(THREADS, "tensor"),
    "call": Reference(WORKERS, "tensor"),
    "process graph": Reference(PROCESSES, "graph"),
    "process tensor": Reference(PROCESSES, "tensor"),
    "message": Reference(PROCESSES, "network"),
}
"""Tasks by name: of a server, of its threads for tensor tasks, of a worker process; and of servers in processes."""

Shown = Callable[[float, Sequence[Span]], float]
"""Seconds and tasks of an epoch → a quantity that they show."""


def small_run(label: str, of: SmallRun, epochs: int, shows: Mapping[Quantity, Shown]) -> Step:
    """Return the measurement of some quantities in so many epochs of a pipeline."""

    def measure() -> Values:
        found: dict[Quantity, list[float]] = {one: [] for one in shows}
        for seconds, spans in of.epochs(epochs):
            for one, shown in shows.items():
                found[one].append(shown(seconds, spans))
        return found

    return Step(label, measure)


def tiny(sizes: Sizes) -> Iterator[Step]:
    """List measurements inside and around tasks that compute next to nothing: by threads, then by a worker process."""
    parts: dict[str, Shown] = {"inside": _mean_of("graph"), "tensor": _mean_of("tensor"), "around": _around}
    yield small_run("tasks", TINY, sizes.epochs, {quantity("task", part=part): of for part, of in parts.items()})
    calls = TINY._replace(tensor=_WORKER)
    yield small_run("calls", calls, sizes.epochs, {quantity("call", transport="ipc"): _mean_of("tensor")})


def steps(sizes: Sizes) -> Iterator[Step]:
    """List the measurements of reference runs."""
    for label, of in {"threads": THREADS, "workers": WORKERS, "processes": PROCESSES}.items():
        shows = {
            quantity("reference", tasks=name): _mean_of(one.resource)
            for name, one in REFERENCES.items()
            if one.of == of
        }
        yield small_run(f"reference, {label}", of, sizes.reference_epochs, shows)


def _mean_of(resource: Resource) -> Shown:
    return lambda _, spans: mean_length(spans, resource)


def mean_length(spans: Sequence[Span], resource: Resource) -> float:
    """Mean seconds of the tasks of a resource."""
    found = [span.end - span.start for span in spans if span.resource == resource]
    return sum(found) / len(found)


def _around(seconds: float, spans: Sequence[Span]) -> float:
    """Mean seconds around a task; tasks run one at a time."""
    return (seconds - sum(span.end - span.start for span in spans)) / len(spans)
