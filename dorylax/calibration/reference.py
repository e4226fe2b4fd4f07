"""Tasks of small pipelines: of some that compute next to nothing, and of some on a graph of some size.

The latter take longer than the same work in a loop: no cache has their data, results go to new memory, cores may have slept.
A simulation of the same runs says how much longer (`dorylax.simulation.one_machine`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.small_runs import TINY, WORKER, Shown, Small, mean_length, small_run
from dorylax.calibration.steps import Quantity, Step, quantity
from dorylax.pipeline.timeline import Resource, Span

THREADS = Small("small", 64, 4)
"""In one process."""
WORKERS = THREADS._replace(tensor=WORKER)
PROCESSES = Small("small", 64, 2, processes=2)


class Reference(NamedTuple):
    """Tasks of a reference run.

    Attributes:
        of: the run.
        resource: whose tasks they are, as in traces.
    """

    of: Small
    resource: Resource


REFERENCES: Mapping[str, Reference] = {
    "graph": Reference(THREADS, "graph"),
    "tensor": Reference(THREADS, "tensor"),
    "call": Reference(WORKERS, "tensor"),
    "process graph": Reference(PROCESSES, "graph"),
    "process tensor": Reference(PROCESSES, "tensor"),
    "message": Reference(PROCESSES, "network"),
}
"""By name: of a server, of its threads for tensor tasks, and of a worker process; then of servers that are processes."""


def tiny(sizes: Sizes) -> Iterator[Step]:
    """List measurements inside and around tasks that compute next to nothing: by threads, then by a worker process."""
    yield small_run("tasks", TINY, sizes.epochs, {quantity("task", part=part): of for part, of in _PARTS.items()})
    calls = TINY._replace(tensor=WORKER)
    yield small_run("calls", calls, sizes.epochs, {quantity("call", transport="ipc"): _PARTS["tensor"]})


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements.

    Args:
        sizes: of the runs.
    """
    for name, of in {"threads": THREADS, "workers": WORKERS, "processes": PROCESSES}.items():
        yield small_run(f"reference, {name}", of, sizes.reference_epochs, _shows(of))


def _shows(run: Small) -> Mapping[Quantity, Shown]:
    return {
        quantity("reference", tasks=name): partial(_mean, one.resource)
        for name, one in REFERENCES.items()
        if one.of == run
    }


def _mean(resource: Resource, _: float, spans: Sequence[Span]) -> float:
    return mean_length(spans, resource)


def _around(seconds: float, spans: Sequence[Span]) -> float:
    """One task at a time: what is not spent inside tasks is spent around them."""
    return (seconds - sum(span.end - span.start for span in spans)) / len(spans)


_PARTS: Mapping[str, Shown] = {
    "inside": lambda _, spans: mean_length(spans, "graph"),
    "tensor": lambda _, spans: mean_length(spans, "tensor"),
    "around": _around,
}
"""Of tasks: inside those of graph servers, inside tensor tasks, around either."""
