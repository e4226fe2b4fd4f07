from __future__ import annotations

import pytest

from dorylax.cost import Calls
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.visit import Visit
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.task import TaskKey

LABELS = {2: "AV"}


def visit(number: int, epoch: int) -> Visit:
    return Visit(0, number, epoch, 0, (), {}, {})


def test_a_task_is_a_span_of_its_interval_and_epoch() -> None:
    spans: list[Span] = []
    recorder = Recorder(LABELS, spans.append)
    recorder.task("GA", "graph", 1, visit(5, 3), times=(0.5, 2.0), task=4)
    assert spans == [Span("GA", "graph", 1, 5, 3, 0.5, 2.0, 4)]


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


def test_parameter_servers_work_for_no_epoch_but_where_an_interval_is_finished() -> None:
    spans: list[Span] = []
    recorder = Recorder(LABELS, spans.append)
    recorder.finish(0, 3, 7, (1.0, 1.25))
    recorder.update(2, 9, (1.5, 2.0))
    assert spans == [
        Span("finish", "parameters", 0, 3, 7, 1.0, 1.25),
        Span("WU", "parameters", 2, -1, -1, 1.5, 2.0, version=9),
    ]


def test_without_a_trace_all_is_counted() -> None:
    recorder = Recorder(LABELS, None)
    recorder.task("GA", "graph", 0, visit(0, 0), times=(0.0, 1.0))
    recorder.calls(0)(Call(TaskKey(0, 0, 2, 0), 0, 0.0, 1.0, "failed"))
    assert (recorder.counters.retries, recorder.counters.calls.requests) == (1, 1)


def test_going_on_it_counts_from_what_was_and_tells_the_time_of_the_run() -> None:
    spans: list[Span] = []
    recorder = Recorder(LABELS, None)
    recorder.task("GA", "graph", 0, visit(0, -1), times=(0.0, 1.0))  # which the process before has told
    recorder.go_on({"graph_tasks": 7}, spans.append, 100.0)
    recorder.task("GA", "graph", 1, visit(5, 3), times=(1.5, 2.0), task=4)
    assert spans == [Span("GA", "graph", 1, 5, 3, 101.5, 102.0, 4)]
    assert recorder.counters.graph_tasks == 7
