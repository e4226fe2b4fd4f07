from __future__ import annotations

import pytest

from dorylax.cost import Calls
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.recorder import GraphCounts, ParameterCounts, Recorder
from dorylax.pipeline.timeline import Span
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.task import TaskKey

LABELS = {2: "AV"}


def visit(number: int, epoch: int) -> IntervalPass:
    return IntervalPass(0, number, epoch, 0, (), {}, {})


@pytest.mark.parametrize("outcome", ["answered", "late", "failed", "deadline", "throttled"])
def test_every_call_is_counted_and_those_that_gave_nothing_are_shown(outcome: Outcome) -> None:
    """An answered call is the task's own span, which is noted where the answer is used."""
    spans: list[Span] = []
    recorder = Recorder(LABELS, spans.append)
    recorder.calls(1)(Call(TaskKey(4, 5, 2, 0), 0, 1.0, 1.5, outcome))
    billed = Calls() if outcome == "throttled" else Calls(requests=1, milliseconds=500)
    assert recorder.counters.calls == billed
    shown = [] if outcome == "answered" else [Span(f"AV ({outcome})", "tensor", 1, 5, 4, 1.0, 1.5, 2)]
    assert spans == shown


def test_going_on_it_counts_from_what_was_and_tells_the_time_of_the_run() -> None:
    spans: list[Span] = []
    recorder = Recorder(LABELS, None)
    recorder.graph_task("GA", 0, visit(0, -1), times=(0.0, 1.0), task=4)  # recorded by the process before
    of_servers = {"graph": [{"calls": {"late": 1}}, {}], "parameter": [{"pulls": 2}]}
    recorder.go_on({"counters": {"graph_tasks": 7}, "servers": of_servers}, 3, spans.append, 100.0)
    recorder.graph_task("GA", 1, visit(5, 3), times=(1.5, 2.0), task=4)
    assert spans == [Span("GA", "graph", 1, 5, 3, 101.5, 102.0, 4)]
    assert recorder.counters.graph_tasks == 8
    assert recorder.graph[0].take(3) == GraphCounts(calls={"late": 1})
    assert recorder.graph[1].take(3) == GraphCounts(graph_tasks=1, graph_seconds=0.5)
    assert recorder.parameters[0].take(3) == ParameterCounts(pulls=2)
