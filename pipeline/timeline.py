"""Timeline of a run: spans of all tasks, and their lanes in Perfetto and chrome://tracing."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, final

Resource = Literal["graph", "tensor", "network", "parameters", "recovery"]

_ORDER: dict[Resource, int] = {"graph": 0, "tensor": 1, "network": 2, "parameters": 3, "recovery": 4}
_PARAMETERS = 1_000_000  # process number of the first parameter server: after any graph server
_LANES = 100_000  # thread numbers for each resource


class Span(NamedTuple):
    """One task.

    Attributes:
        name: Label of the task (GA, AV, SC, AE, ∇…), name of other work, or name of the lost server.
        resource: Busy resource.
        server: Index of the graph server or parameter server.
        interval: Number of the interval in the whole graph.
        epoch: Epoch of the interval; -1 before training, and for updates with gradients of several epochs.
        start: Clock seconds at the start.
        end: Clock seconds at the end.
        task: Index of the task in the program; None for other work.
        version: Version of the weights that the task creates; None for other tasks.
        gate: State of the stability gate from that version on, "open" or "closed"; None for other tasks and without a gate.
    """

    name: str
    resource: Resource
    server: int
    interval: int
    epoch: int
    start: float
    end: float
    task: int | None = None
    version: int | None = None
    gate: str | None = None

    def later(self, seconds: float) -> Span:
        """Return the span shifted by some seconds."""
        return self._replace(start=seconds + self.start, end=seconds + self.end)


@final
class Lanes:
    """Converts a stream of spans to Chrome trace events, with a process per server and a thread per lane of each resource.

    Overlapping tasks on one resource get different lanes. Each task gets the lane that has been free for the shortest time,
    so the number of lanes is minimal if the tasks arrive in order of their ends. Starts and ends are rounded alike, to
    nanoseconds, so rounding introduces no overlaps.

    Args:
        names: Events that name the existing lanes, all free.
    """

    def __init__(self, names: Iterable[Mapping[str, Any]] = ()) -> None:
        # Sorted lanes of each (process, resource) as (end in nanoseconds, -number); among lanes with equal ends, the lowest
        # number is used first.
        self._lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._processes: set[int] = set()
        for event in names:
            self._processes.add(event["pid"])
            if event["name"] == "thread_name":
                resource, lane = divmod(event["tid"], _LANES)
                self._lanes.setdefault((event["pid"], resource), []).append((0, -lane))
        self.free()

    def free(self) -> None:
        """Mark all lanes as free, if every later task starts after all tasks so far."""
        self._lanes = {key: sorted((0, lane) for _, lane in lanes) for key, lanes in self._lanes.items()}

    def events(self, span: Span) -> list[dict[str, Any]]:
        """Return the event of a span, preceded by the naming events of a new lane."""
        start, end = nanoseconds(span.start), nanoseconds(span.end)
        resource = _ORDER[span.resource]
        process = span.server + (_PARAMETERS if span.resource == "parameters" else 0)
        found: list[dict[str, Any]] = []
        lanes = self._lanes.setdefault((process, resource), [])
        place = bisect.bisect_right(lanes, (start, 1))
        lane = -lanes.pop(place - 1)[1] if place else len(lanes)
        thread = _LANES * resource + lane
        if not place:
            if process not in self._processes:
                self._processes.add(process)
                kind = "parameter server" if span.resource == "parameters" else "graph server"
                found.append(_name("process_name", process, 0, f"{kind} {span.server}"))
            found.append(_name("thread_name", process, thread, f"{span.resource} {lane}"))
        bisect.insort(lanes, (end, -lane))
        arguments: dict[str, Any] = {
            "server": span.server,
            "interval": span.interval,
            "epoch": span.epoch,
            "kind": span.resource,
        }
        further = {"task": span.task, "version": span.version, "gate": span.gate}
        arguments |= {name: value for name, value in further.items() if value is not None}
        found.append(
            {
                "name": span.name,
                "cat": span.resource,
                "ph": "X",
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "pid": process,
                "tid": thread,
                "args": arguments,
            }
        )
        return found


def nanoseconds(seconds: float) -> int:
    """Return a time in seconds as rounded nanoseconds."""
    return round(seconds * 1e9)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
