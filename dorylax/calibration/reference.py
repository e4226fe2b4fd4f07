"""What tasks of a pipeline take on a graph of some size: longer than the same work does over and over by itself.

Within a pipeline the work's data are in no cache, its results in new memory, and its core may have slept. A simulation of
the same runs says how much longer (`dorylax.simulation.one_machine`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.steps import Step, summary
from dorylax.calibration.tasks import Small, lengths, small_epochs
from dorylax.cost.measured import Measurement
from dorylax.serverless.config import TensorConfig

REFERENCE = Small("small", 64, 4)
WORKER = TensorConfig(backend="local", workers=1)
TASKS = ("graph", "tensor", "call")
"""Of the server, of its threads for tensor tasks, and of a worker process."""


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements, of two runs.

    Args:
        sizes: of the runs.
    """

    @cache
    def found() -> dict[str, Measurement]:
        return _measure(sizes.reference_epochs)

    for tasks in TASKS:
        yield Step(f"reference, {tasks}", partial(lambda tasks: found()[tasks], tasks))


def _measure(epochs: int) -> dict[str, Measurement]:
    taken: dict[str, list[float]] = {tasks: [] for tasks in TASKS}
    for _, spans in small_epochs(epochs, TensorConfig(), REFERENCE):
        for tasks in ("graph", "tensor"):
            found = lengths(spans, tasks)
            taken[tasks].append(sum(found) / len(found))
    for _, spans in small_epochs(epochs, WORKER, REFERENCE):
        calls = lengths(spans, "tensor")
        taken["call"].append(sum(calls) / len(calls))
    return {tasks: summary("reference", values, tasks=tasks) for tasks, values in taken.items()}
