"""What ran when: every task of a run, and the lanes in which Perfetto and chrome://tracing show them."""

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
        name: GA, AV, SC, AE, ∇…, what else is done, or what was lost.
        resource: who was busy.
        server: the graph server, or the parameter server.
        interval: its number in the whole graph.
        epoch: of the interval; -1 before training, and where updates of several epochs may meet.
        start, end: the clock's seconds.
        task: the number of the task in the program; None for what is no task of it.
        version: of the weights that it made; None for what makes none.
        gate: "open" or "closed" from that version on; None for other tasks, and without a stability gate.
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
        """The same, so many seconds later."""
        return self._replace(start=seconds + self.start, end=seconds + self.end)


@final
class Lanes:
    """Spans as Chrome trace events, as they come: a process per server, a thread per lane of each resource.

    Tasks that overlap on one resource lie in different lanes, as few as are needed where they come in the order in which
    they ended: each takes the lane that has been free for the shortest time. Times are rounded to nanoseconds, starts and
    ends alike, so what did not overlap does not do so afterwards.

    Args:
        names: events that name the lanes that there are already, all of them free.
    """

    def __init__(self, names: Iterable[Mapping[str, Any]] = ()) -> None:
        # Of each (process, resource) the lanes as (end in nanoseconds, -number), sorted: of those that ended together,
        # the first is taken first.
        self._lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._processes: set[int] = set()
        for event in names:
            self._processes.add(event["pid"])
            if event["name"] == "thread_name":
                resource, lane = divmod(event["tid"], _LANES)
                self._lanes.setdefault((event["pid"], resource), []).append((0, -lane))
        self.free()

    def free(self) -> None:
        """Forgets what lay in the lanes: every task to come begins after all that came."""
        self._lanes = {key: sorted((0, lane) for _, lane in lanes) for key, lanes in self._lanes.items()}

    def events(self, span: Span) -> list[dict[str, Any]]:
        """The event of a span; before it, events that name its lane, where it is the first in it."""
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
        if span.task is not None:
            arguments["task"] = span.task
        if span.version is not None:
            arguments["version"] = span.version
        if span.gate is not None:
            arguments["gate"] = span.gate
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
    """Rounded."""
    return round(seconds * 1e9)


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
