"""What a report takes from a run's trace: one epoch of tasks, and how much time each kind of task takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from dorylax.store.trace import read

_MICRO = 1e-6
_PARAMETERS = "parameters"

IN_VAIN = "late or failed"
"""The kind of calls whose answer did not count."""


class TimelineTask(NamedTuple):
    """A task of one epoch.

    Attributes:
        kind: GA, AV, SC, ∇GA, … WU.
        lane: resource and number: "tensor 3".
        start, end: in seconds since the epoch began.
    """

    kind: str
    lane: str
    start: float
    end: float


class Trace(NamedTuple):
    """What a trace holds.

    Attributes:
        tasks: events of the phase "X"; may be gone through again and again.
        lanes: the names of threads by (process, thread).
    """

    tasks: Iterable[Mapping[str, Any]]
    lanes: Mapping[tuple[int, int], str]


@final
class _Tasks:
    """Of a file, which may be larger than memory: read anew each time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (event for event in read(self._path) if event["ph"] == "X")


def read_trace(path: Path) -> Trace | None:
    """A run's `trace.json`, as far as it is whole; None where there is none.

    Raises:
        RunDirectoryError: it is no trace, or cannot be read.
    """
    if not path.is_file():
        return None
    names = (event for event in read(path) if event["ph"] == "M" and event["name"] == "thread_name")
    return Trace(_Tasks(path), {(event["pid"], event["tid"]): event["args"]["name"] for event in names})


def traced_epochs(trace: Trace) -> int:
    """Of how many epochs it holds tasks."""
    return len({event["args"]["epoch"] for event in trace.tasks if event["args"]["epoch"] >= 0})


def one_epoch(trace: Trace) -> list[TimelineTask]:
    """The tasks of an epoch that took as long as those that are traced usually do.

    It is the first graph server's, from where its first interval enters the epoch to where its first enters the next. In
    asynchronous runs these are tasks of other epochs too.
    """
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for event in trace.tasks:
        epoch = event["args"]["epoch"]
        if event["pid"] == 0 and epoch >= 0:
            starts[epoch] = min(starts.get(epoch, event["ts"]), event["ts"])
            ends[epoch] = max(ends.get(epoch, 0.0), event["ts"] + event["dur"])
    if not starts:
        return []
    last = max(starts)  # of others, too, nobody knows when the next began, where a sample leaves it out
    lengths = {
        epoch: starts.get(epoch + 1, ends[epoch]) - start
        for epoch, start in starts.items()
        if epoch + 1 in starts or epoch == last
    }
    by_length = sorted(lengths, key=lambda epoch: (lengths[epoch], epoch))
    usual = by_length[len(by_length) // 2]
    begin, end = starts[usual], starts[usual] + lengths[usual]
    found = []
    for event in trace.tasks:
        first, last = event["ts"], event["ts"] + event["dur"]
        resource = event["args"]["kind"]
        if last <= begin or first >= end or (event["pid"] != 0 and resource != _PARAMETERS):
            continue
        lane = trace.lanes.get((event["pid"], event["tid"]), resource)  # in a damaged trace it may have no name
        found.append(
            TimelineTask(_kind(event), lane, _MICRO * (max(first, begin) - begin), _MICRO * (min(last, end) - begin))
        )
    order = {"graph": 0, "tensor": 1, "network": 2, _PARAMETERS: 3}
    return sorted(found, key=lambda task: (order.get(task.lane.split(" ")[0], 9), task.lane, task.start))


def _kind(event: Mapping[str, Any]) -> str:
    """GA, AV, …; messages are together, and so are calls whose answer did not count."""
    if event["args"]["kind"] == "network":
        return "network"
    name = str(event["name"])
    return IN_VAIN if name.endswith(")") else name  # "AV (late)"


def task_seconds(trace: Trace) -> dict[str, float]:
    """Seconds per epoch by kind of task, over all servers; messages together as `network`."""
    epochs = {event["args"]["epoch"] for event in trace.tasks if event["args"]["epoch"] >= 0}
    totals: dict[str, float] = {}
    for event in trace.tasks:
        if event["args"]["epoch"] < 0 and event["args"]["kind"] != _PARAMETERS:
            continue  # before training
        kind = _kind(event)
        totals[kind] = totals.get(kind, 0.0) + _MICRO * event["dur"]
    return {kind: seconds / max(1, len(epochs)) for kind, seconds in totals.items()}
