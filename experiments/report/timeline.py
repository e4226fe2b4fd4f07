"""Reads from a run's trace: the tasks of one epoch, and the time that each kind of task takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from dorylax.runs.trace import read

_MICRO = 1e-6
_PARAMETERS = "parameters"
_RESOURCES = {"graph": 0, "tensor": 1, "network": 2, _PARAMETERS: 3}

IN_VAIN = "late or failed"
"""The kind of calls whose answer was not used."""


class TimelineTask(NamedTuple):
    """A task: its kind (GA, AV, …), its lane (`tensor 3`), and its start and end in seconds since the epoch began."""

    kind: str
    lane: str
    start: float
    end: float


class Trace(NamedTuple):
    """The events of a trace's tasks, which may be iterated again and again, and lane names by (process, thread)."""

    tasks: Iterable[Mapping[str, Any]]
    lanes: Mapping[tuple[int, int], str]


@final
class _Tasks:
    """Task events of a file that may be larger than memory: each iteration reads it anew."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (event for event in read(self._path) if event["ph"] == "X")


def read_trace(path: Path) -> Trace | None:
    """The complete events of a run's trace.json; None without the file.

    Raises:
        RunDirectoryError: The file is no trace, or cannot be read.
    """
    if not path.is_file():
        return None
    names = (event for event in read(path) if event["ph"] == "M" and event["name"] == "thread_name")
    return Trace(_Tasks(path), {(event["pid"], event["tid"]): event["args"]["name"] for event in names})


def traced_epochs(trace: Trace) -> int:
    """Number of epochs with tasks."""
    return len({event["args"]["epoch"] for event in trace.tasks if event["args"]["epoch"] >= 0})


def one_epoch(trace: Trace) -> list[TimelineTask]:
    """Tasks on the first graph server and the parameter servers during an epoch of median length.

    The epoch lasts from its first task on that server to the first task of the next epoch. In asynchronous runs tasks of
    other epochs run meanwhile.
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
    # A sampled trace does not tell when the epoch after a gap began.
    whole = [epoch for epoch in starts if epoch + 1 in starts or epoch == max(starts)]
    lengths = {epoch: starts.get(epoch + 1, ends[epoch]) - starts[epoch] for epoch in whole}
    usual = sorted(lengths, key=lambda epoch: (lengths[epoch], epoch))[len(lengths) // 2]
    begin, end = starts[usual], starts[usual] + lengths[usual]
    found = []
    for event in trace.tasks:
        first, last = event["ts"], event["ts"] + event["dur"]
        resource = event["args"]["kind"]
        if last <= begin or first >= end or (event["pid"] != 0 and resource != _PARAMETERS):
            continue
        lane = trace.lanes.get((event["pid"], event["tid"]), resource)  # a damaged trace may lack its name
        times = _MICRO * (max(first, begin) - begin), _MICRO * (min(last, end) - begin)
        found.append(TimelineTask(_kind(event), lane, *times))
    return sorted(found, key=lambda task: (_RESOURCES.get(task.lane.split(" ")[0], 9), task.lane, task.start))


def task_seconds(trace: Trace) -> dict[str, float]:
    """Seconds per epoch by kind of task, over all servers; all messages together are `network`."""
    epochs = traced_epochs(trace)
    totals: dict[str, float] = {}
    for event in trace.tasks:
        if event["args"]["epoch"] >= 0 or event["args"]["kind"] == _PARAMETERS:  # others ran before training
            kind = _kind(event)
            totals[kind] = totals.get(kind, 0.0) + _MICRO * event["dur"]
    return {kind: seconds / max(1, epochs) for kind, seconds in totals.items()}


def _kind(event: Mapping[str, Any]) -> str:
    if event["args"]["kind"] == "network":
        return "network"
    name = str(event["name"])
    return IN_VAIN if name.endswith(")") else name  # "AV (late)"
