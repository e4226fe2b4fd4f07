from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dorylax.cost import Calls
from dorylax.metrics.evaluation import Evaluated
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.recorder import Counters, EpochCounts, GraphCounts, ParameterCounts, Recorder
from dorylax.pipeline.timeline import Span
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.task import TaskKey

LABELS = {2: "AV"}


def visit(number: int, epoch: int) -> IntervalPass:
    return IntervalPass(0, number, epoch, 0, (), {}, {})


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        ("answered", {}),
        ("late", {"late": 1}),
        ("failed", {"retries": 1}),
        ("deadline", {"retries": 1}),
        ("throttled", {"throttled": 1}),
    ],
)
def test_whatever_the_cloud_began_is_billed_and_what_gave_nothing_is_shown(
    outcome: Outcome, counted: dict[str, int]
) -> None:
    """An answered call is the task's own span, which is noted where the answer is used."""
    spans: list[Span] = []
    recorder = Recorder(LABELS, spans.append)
    recorder.calls(1)(Call(TaskKey(4, 5, 2, 0), 0, 1.0, 1.5, outcome))
    assert recorder.counters.calls == (Calls() if outcome == "throttled" else Calls(requests=1, milliseconds=500))
    assert {name: count for name, count in recorder.counters.to_dict().items() if count} == counted
    shown = [] if outcome == "answered" else [Span(f"AV ({outcome})", "tensor", 1, 5, 4, 1.0, 1.5, 2)]
    assert spans == shown


def test_what_several_have_counted_adds_up() -> None:
    one = Counters(graph_tasks=1, rows_by_lag={"0": 2}, calls=Calls(1, 10), late=3)
    other = Counters(graph_tasks=4, rows_by_lag={"0": 1, "1": 5}, calls=Calls(2, 20))
    total = Counters()
    total.add(one)
    total.add(other)
    assert total == Counters(graph_tasks=5, rows_by_lag={"0": 3, "1": 5}, calls=Calls(3, 30), late=3)
    assert other.rows_by_lag == {"0": 1, "1": 5}


def test_evaluations_of_intervals_add_up() -> None:
    parts = [Evaluated(np.array([[1, number]]), number == 1) for number in range(3)]
    total = Evaluated.of(parts)
    np.testing.assert_array_equal(total.sums, [[3, 3]])
    assert total.nan
    assert not Evaluated.of(parts[::2]).nan


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


def test_what_is_done_counts_for_its_epoch_whenever_it_is_done_also_by_another() -> None:
    counts, other = EpochCounts(ParameterCounts), EpochCounts(ParameterCounts)
    counts.of(-1).pulls += 100  # before training
    counts.of(1).pulls += 2
    counts.of(0).pulls += 1
    assert counts.take(0) == ParameterCounts(pulls=1)
    other.of(-1).pulls += 9
    other.restore(1, dataclasses.asdict(counts.of(1)))
    for one in (counts, other):
        one.of(0).pulls += 4  # too late: it was written down
        assert one.take(1) == ParameterCounts(pulls=6)
        assert one.take(2) == ParameterCounts()


def test_queues_are_what_tasks_find_when_they_come() -> None:
    counts = GraphCounts(graph_tasks=4, tensor_tasks=2, rows_by_lag={"1": 3, "-1": 2, "10": 1, "0": 5})
    for waiting in (0, 1, 2, 0):
        counts.graph_queued(waiting)
    for under_way in (1, 2):
        counts.tensor_queued(under_way)
    found = counts.metrics(7, 1, 2)
    assert (found.epoch, found.server, found.graph_threads) == (7, 1, 2)
    assert (found.graph_queue_mean, found.graph_queue_max) == (0.75, 2)
    assert (found.tensor_calls_mean, found.tensor_calls_max) == (1.5, 2)
    assert list(found.rows_by_lag) == ["-1", "0", "1", "10"]
    assert GraphCounts().metrics(0, 0, 1).graph_queue_mean == 0
