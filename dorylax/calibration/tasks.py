"""What a task of a pipeline costs that computes next to nothing: inside it, and around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dorylax.calibration.sizes import Sizes
from dorylax.calibration.small_runs import TINY, WORKER, Shown, mean_length, small_run
from dorylax.calibration.steps import Step, quantity
from dorylax.pipeline.timeline import Span


def steps(sizes: Sizes) -> Iterator[Step]:
    """The measurements: by threads, then with tensor tasks in a worker process.

    Args:
        sizes: of the runs.
    """
    yield small_run("tasks", TINY, sizes.epochs, {quantity("task", part=part): of for part, of in _PARTS.items()})
    calls = TINY._replace(tensor=WORKER)
    yield small_run("calls", calls, sizes.epochs, {quantity("call", transport="ipc"): _PARTS["tensor"]})


def _around(seconds: float, spans: Sequence[Span]) -> float:
    """One task at a time: what is not spent inside tasks is spent around them."""
    return (seconds - sum(span.end - span.start for span in spans)) / len(spans)


_PARTS: Mapping[str, Shown] = {
    "inside": lambda _, spans: mean_length(spans, "graph"),
    "tensor": lambda _, spans: mean_length(spans, "tensor"),
    "around": _around,
}
"""Of tasks: inside those of graph servers, inside tensor tasks, around either."""
