"""What tasks of a pipeline take on a graph of some size: longer than the same work does over and over by itself.

Within a pipeline the work's data are in no cache, its results in new memory, and its core may have slept. A simulation of
the same runs says how much longer (`dorylax.simulation.one_machine`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, summary
from dorylax.calibration.tasks import Small, lengths, small_epochs
from dorylax.cost.measured import Measurement
from dorylax.pipeline.timeline import Resource
from dorylax.serverless.config import TensorConfig

REFERENCE = Small("small", 64, 4)
"""In one process."""
PROCESSES = Small("small", 64, 2, processes=2)
WORKER = TensorConfig(backend="local", workers=1)


class Reference(NamedTuple):
    """Tasks of a reference run.

    Attributes:
        of: the run.
        tensor: where its tensor tasks run.
        resource: whose tasks they are, as in traces.
    """

    of: Small
    tensor: TensorConfig
    resource: Resource


REFERENCES: Mapping[str, Reference] = {
    "graph": Reference(REFERENCE, TensorConfig(), "graph"),
    "tensor": Reference(REFERENCE, TensorConfig(), "tensor"),
    "call": Reference(REFERENCE, WORKER, "tensor"),
    "process graph": Reference(PROCESSES, TensorConfig(), "graph"),
    "process tensor": Reference(PROCESSES, TensorConfig(), "tensor"),
    "message": Reference(PROCESSES, TensorConfig(), "network"),
}
"""By name: of a server, of its threads for tensor tasks, and of a worker process; then of servers that are processes."""


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements, of three runs.

    Args:
        sizes: of the runs.
    """

    @cache
    def found(of: Small, backend: str) -> dict[str, Measurement]:
        same = {name: one for name, one in REFERENCES.items() if (one.of, one.tensor.backend) == (of, backend)}
        return _measure(same, sizes.reference_epochs)

    def measure(name: str) -> Measurement:
        one = REFERENCES[name]
        return found(one.of, one.tensor.backend)[name]

    for name in REFERENCES:
        yield Step(f"reference, {name}", partial(measure, name))


def _measure(references: Mapping[str, Reference], epochs: int) -> dict[str, Measurement]:
    """Of one run."""
    first = next(iter(references.values()))
    taken: dict[str, list[float]] = {name: [] for name in references}
    for _, spans in small_epochs(epochs, first.tensor, first.of):
        for name, one in references.items():
            found = lengths(spans, one.resource)
            taken[name].append(sum(found) / len(found))
    return {name: summary("reference", values, tasks=name) for name, values in taken.items()}
