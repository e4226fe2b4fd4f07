"""Spans as Chrome trace events."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.timeline import Lanes, Span


def task(start: float, end: float, server: int = 0) -> Span:
    return Span("AV", "tensor", server, 0, 0, start, end)


def shown(lanes: Lanes, spans: Iterable[Span]) -> list[dict[str, Any]]:
    return [event for span in spans for event in lanes.events(span)]


def complete(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def test_every_task_with_server_interval_epoch_and_kind() -> None:
    (event,) = complete(shown(Lanes(), [Span("GA", "graph", 1, 9, 3, 0.5, 0.75, 4)]))
    assert event["name"] == "GA"
    assert (event["ts"], event["dur"]) == (500_000, 250_000)
    assert event["args"] == {"server": 1, "interval": 9, "epoch": 3, "kind": "graph", "task": 4}


def test_servers_and_lanes_have_names() -> None:
    spans = [Span("GA", "graph", 0, 0, 0, 0, 1), Span("WU", "parameters", 0, -1, -1, 1, 2, version=3)]
    events = shown(Lanes(), spans)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"graph server 0", "graph 0", "parameter server 0", "parameters 0"}
    assert [event["args"].get("version") for event in complete(events)] == [None, 3]


def test_more_than_a_thousand_at_a_time_are_still_of_one_resource() -> None:
    """Functions of a cloud are so many."""
    spans = [task(0, 1 + k) for k in range(1500)] + [Span("SC → 1", "network", 0, 0, 0, 0, 1501)]
    events = shown(Lanes(), spans)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[event["tid"]].split()[0] for event in complete(events)] == ["tensor"] * 1500 + ["network"]


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)), max_size=40), st.floats(1e-10, 1e-3))
def test_in_a_lane_nothing_overlaps_and_there_are_no_more_than_are_needed(
    pairs: list[tuple[int, int]], unit: float
) -> None:
    """To the nanosecond, however times are rounded, of tasks that come in the order in which they end."""
    spans = sorted((task(unit * min(pair), unit * max(pair)) for pair in pairs), key=lambda span: span.end)
    lanes: dict[int, list[tuple[int, int]]] = {}
    for event in complete(shown(Lanes(), spans)):
        start = round(1000 * event["ts"])
        lanes.setdefault(event["tid"], []).append((start, start + round(1000 * event["dur"])))
    for found in lanes.values():
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))
    every = [times for found in lanes.values() for times in found]
    assert len(lanes) <= max((sum(a <= start <= b for a, b in every) for start, _ in every), default=0)
