from __future__ import annotations

import dataclasses

import pytest

from dorylax.cost import Calls
from dorylax.pipeline.buffers import Reads
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.server_counts import GraphCounts, ParameterCounts
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
    recorder.graph_task("GA", 1, visit(5, 3), times=(0.5, 2.0), task=4)
    recorder.tensor_task("AV", 1, visit(5, 3), times=(2.0, 2.25), task=2)
    recorder.message("SC → 0", 1, visit(5, 3), times=(2.5, 3.0), num_bytes=7)
    assert spans == [
        Span("GA", "graph", 1, 5, 3, 0.5, 2.0, 4),
        Span("AV", "tensor", 1, 5, 3, 2.0, 2.25, 2),
        Span("SC → 0", "network", 1, 5, 3, 2.5, 3.0),
    ]
    counted = GraphCounts(graph_tasks=1, graph_seconds=1.5, tensor_tasks=1, tensor_seconds=0.25)
    assert recorder.graph[1].take(3) == dataclasses.replace(counted, messages=1, message_bytes=7)


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
    recorder.update(2, 8, 9, (1.5, 2.0))
    assert spans == [
        Span("finish", "parameters", 0, 3, 7, 1.0, 1.25),
        Span("WU", "parameters", 2, -1, -1, 1.5, 2.0, version=9),
    ]


def test_going_on_it_counts_from_what_was_and_tells_the_time_of_the_run() -> None:
    spans: list[Span] = []
    recorder = Recorder(LABELS, None)
    recorder.graph_task("GA", 0, visit(0, -1), times=(0.0, 1.0), task=4)  # which the process before has told
    of_servers = {"graph": [{"calls": {"late": 1}}, {}], "parameter": [{"pulls": 2}]}
    recorder.go_on({"counters": {"graph_tasks": 7}, "servers": of_servers}, 3, spans.append, 100.0)
    recorder.graph_task("GA", 1, visit(5, 3), times=(1.5, 2.0), task=4)
    assert spans == [Span("GA", "graph", 1, 5, 3, 101.5, 102.0, 4)]
    assert recorder.counters.graph_tasks == 8
    assert recorder.graph[0].take(3) == GraphCounts(calls={"late": 1})
    assert recorder.graph[1].take(3) == GraphCounts(graph_tasks=1, graph_seconds=0.5)
    assert recorder.parameters[0].take(3) == ParameterCounts(pulls=2)


def test_rows_are_counted_by_how_far_they_were_behind_their_reader() -> None:
    recorder = Recorder(LABELS, None)
    recorder.read(1, visit(5, 0), Reads(0, (9,)))  # the first epoch reads its own
    recorder.read(1, visit(5, 3), Reads(2, (4, 5, 6)))
    recorder.read(0, visit(1, 3), Reads(3, (1,)))
    assert recorder.counters.rows_by_lag == {"1": 4, "0": 6, "-1": 6}
    assert recorder.graph[1].take(3).rows_by_lag == {"1": 4, "0": 5, "-1": 6}


def test_what_a_parameter_server_is_asked_is_counted_for_the_epoch_of_whoever_asks() -> None:
    recorder = Recorder({}, None)
    recorder.pull(1, 4, held=True, num_bytes=100, stashes=3)
    recorder.pull(1, 4, held=False, num_bytes=100, stashes=2)
    recorder.push(1, 4, 30)
    recorder.passed_on(1, 4, 5)
    recorder.push(1, 5, 1000)
    expected = ParameterCounts(pulls=2, pulls_held=1, pushes=1, bytes_received=30, bytes_sent=205, stashes_max=3)
    assert recorder.parameters[1].take(4) == expected
    assert recorder.counters.pulls_held == 1
