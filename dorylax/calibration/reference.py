"""What tasks of a pipeline take on a graph of some size: longer than the same work does over and over by itself.

Within a pipeline the work's data are in no cache, its results in new memory, and its core may have slept. A simulation of
the same runs says how much longer (`dorylax.simulation.one_machine`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.small_runs import WORKER, Shown, Small, mean_length, small_run
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
