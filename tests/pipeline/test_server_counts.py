from __future__ import annotations

import dataclasses

from dorylax.pipeline.recorder import EpochCounts, GraphCounts, ParameterCounts


def test_what_is_done_counts_for_its_epoch_whenever_it_is_done() -> None:
    counts = EpochCounts(ParameterCounts)
    counts.of(-1).pulls += 100  # before training
    counts.of(1).pulls += 2
    counts.of(0).pulls += 1
    assert counts.take(0) == ParameterCounts(pulls=1)
    counts.of(0).pulls += 4  # too late: it was written down
    assert counts.take(1) == ParameterCounts(pulls=6)
    assert counts.take(2) == ParameterCounts()


def test_another_goes_on_with_what_was_counted_ahead() -> None:
    counts = EpochCounts(GraphCounts)
    counts.of(4).calls["late"] = 1
    saved = dataclasses.asdict(counts.of(4))
    other = EpochCounts(GraphCounts)
    other.of(-1).graph_tasks += 9
    other.restore(4, saved)
    other.of(3).messages += 1
    assert other.take(4) == GraphCounts(calls={"late": 1}, messages=1)


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
