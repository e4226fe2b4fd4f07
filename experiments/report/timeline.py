"""What a report takes from a run's trace: one epoch of tasks, and how much time each kind of task takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_MICRO = 1e-6
_PARAMETERS = "parameters"


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
    """What a trace holds: tasks, and the names of threads by (process, thread)."""

    tasks: Sequence[Mapping[str, Any]]
    lanes: Mapping[tuple[int, int], str]


def read_trace(path: Path) -> Trace | None:
    """A run's `trace.json`; None where there is none.

    Raises:
        ValueError: it is no JSON.
    """
    if not path.is_file():
        return None
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    return Trace([event for event in events if event["ph"] == "X"], lanes)


def one_epoch(trace: Trace) -> list[TimelineTask]:
    """The tasks that ran while the first graph server's intervals were in an epoch in the middle of the run.

    Of an asynchronous run these are tasks of other epochs too: what is shown is a stretch of time as long as that epoch.
    """
    epochs = sorted({event["args"]["epoch"] for event in trace.tasks if event["args"]["epoch"] >= 0})
    if not epochs:
        return []
    middle = epochs[len(epochs) // 2]
    mine = [event for event in trace.tasks if event["args"]["epoch"] == middle and event["pid"] == 0]
    if not mine:
        return []
    begin = min(event["ts"] for event in mine)
    # Until the next epoch begins: in asynchronous runs the last interval of this one ends long after that.
    following = [event["ts"] for event in trace.tasks if event["args"]["epoch"] == middle + 1 and event["pid"] == 0]
    end = min(following, default=max(event["ts"] + event["dur"] for event in mine))
    found = []
    for event in trace.tasks:
        first, last = event["ts"], event["ts"] + event["dur"]
        resource = event["args"]["kind"]
        if last <= begin or first >= end or (event["pid"] != 0 and resource != _PARAMETERS):
            continue
        lane = trace.lanes[event["pid"], event["tid"]]
        kind = "network" if resource == "network" else str(event["name"])
        found.append(TimelineTask(kind, lane, _MICRO * (max(first, begin) - begin), _MICRO * (min(last, end) - begin)))
    order = {"graph": 0, "tensor": 1, "network": 2, _PARAMETERS: 3}
    return sorted(found, key=lambda task: (order.get(task.lane.split(" ")[0], 9), task.lane, task.start))


def task_seconds(trace: Trace) -> dict[str, float]:
    """Seconds per epoch by kind of task, over all servers; messages together as `network`."""
    epochs = {event["args"]["epoch"] for event in trace.tasks if event["args"]["epoch"] >= 0}
    totals: dict[str, float] = {}
    for event in trace.tasks:
        if event["args"]["epoch"] < 0 and event["args"]["kind"] != _PARAMETERS:
            continue  # before training
        kind = "network" if event["args"]["kind"] == "network" else str(event["name"])
        totals[kind] = totals.get(kind, 0.0) + _MICRO * event["dur"]
    return {kind: seconds / max(1, len(epochs)) for kind, seconds in totals.items()}
