"""Spans as Chrome trace events."""

from __future__ import annotations

from typing import Any

from dorylax.pipeline.timeline import Span, Timeline


def complete(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def test_every_task_with_server_interval_epoch_and_kind():
    timeline = Timeline()
    timeline.add(Span("GA", "graph", 1, 9, 3, 0.5, 0.75, 4))
    (event,) = complete(timeline.events())
    assert event["name"] == "GA"
    assert (event["ts"], event["dur"]) == (500_000, 250_000)
    assert event["args"] == {"server": 1, "interval": 9, "epoch": 3, "kind": "graph", "task": 4}


def test_tasks_that_overlap_lie_in_lanes_of_their_own():
    timeline = Timeline()
    for start, end in ((0, 2), (1, 3), (2, 4), (3, 5)):
        timeline.add(Span("AV", "tensor", 0, 0, 0, start, end))
    lanes = [event["tid"] for event in complete(timeline.events())]
    assert lanes[0] == lanes[2]
    assert lanes[1] == lanes[3]
    assert lanes[0] != lanes[1]


def test_servers_and_lanes_have_names():
    timeline = Timeline()
    timeline.add(Span("GA", "graph", 0, 0, 0, 0, 1))
    timeline.add(Span("WU", "parameters", 0, -1, -1, 1, 2, version=3))
    names = {event["args"]["name"] for event in timeline.events() if event["ph"] == "M"}
    assert names == {"graph server 0", "graph 0", "parameter server 0", "parameters 0"}
    assert [event["args"].get("version") for event in complete(timeline.events())] == [None, 3]
