"""What ran when: every task of a run, as Chrome trace events that Perfetto and chrome://tracing open."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, final

Resource = Literal["graph", "tensor", "network", "parameters"]

_PARAMETERS = 1_000_000  # process number of the first parameter server: after any graph server


class Span(NamedTuple):
    """One task.

    Attributes:
        name: GA, AV, SC, AE, ∇…, or what else is done.
        resource: who was busy.
        server: the graph server, or the parameter server.
        interval: its number in the whole graph.
        epoch: of the interval; -1 before training, and where updates of several epochs may meet.
        start, end: the clock's seconds.
        task: the number of the task in the program; None for what is no task of it.
        version: of the weights that it made; None for what makes none.
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


@final
class Timeline:
    """The spans of a run, in the order in which they ended.

    Args:
        recording: False keeps none: they would grow with every epoch.
    """

    def __init__(self, *, recording: bool = True) -> None:
        self.spans: list[Span] = []
        self._recording = recording

    def add(self, span: Span) -> None:
        """Records a task."""
        if self._recording:
            self.spans.append(span)

    def events(self) -> list[dict[str, Any]]:
        """Chrome trace events: a process per server, a thread per lane of each resource; times in microseconds.

        Tasks that overlap on one resource lie in different lanes, as few as are needed.
        """
        events: list[dict[str, Any]] = []
        named: set[tuple[int, int]] = set()
        lanes: dict[tuple[int, Resource], list[float]] = {}
        order: list[Resource] = ["graph", "tensor", "network", "parameters"]
        for span in sorted(self.spans, key=lambda one: (one.start, one.end)):
            process = span.server + (_PARAMETERS if span.resource == "parameters" else 0)
            ends = lanes.setdefault((process, span.resource), [])
            lane = next((k for k, end in enumerate(ends) if end <= span.start), len(ends))
            ends[lane : lane + 1] = [span.end]
            thread = 1000 * order.index(span.resource) + lane
            if (process, -1) not in named:
                named.add((process, -1))
                kind = "parameter server" if span.resource == "parameters" else "graph server"
                events.append(_name("process_name", process, 0, f"{kind} {span.server}"))
            if (process, thread) not in named:
                named.add((process, thread))
                events.append(_name("thread_name", process, thread, f"{span.resource} {lane}"))
            arguments = {"server": span.server, "interval": span.interval, "epoch": span.epoch, "kind": span.resource}
            if span.task is not None:
                arguments["task"] = span.task
            if span.version is not None:
                arguments["version"] = span.version
            events.append(
                {
                    "name": span.name,
                    "cat": span.resource,
                    "ph": "X",
                    "ts": round(span.start * 1e6, 3),
                    "dur": round((span.end - span.start) * 1e6, 3),
                    "pid": process,
                    "tid": thread,
                    "args": arguments,
                }
            )
        return events


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
