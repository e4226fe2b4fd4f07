"""Placements of stages: a table of decisions, and all placements beside the chosen one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.cost.placement import Room, StageTimes, decide, expected

ROOM = Room(threads=2, slots=100, rent=1e-5)
HEAVY = StageTimes(calls=16, server_seconds=1.0, function_seconds=0.5, function_dollars=1e-6)
LIGHT = StageTimes(calls=16, server_seconds=0.001, function_seconds=0.03, function_dollars=1e-6)
DEAR = HEAVY._replace(function_dollars=1e-3)
SLOW = HEAVY._replace(function_seconds=9.0)


@pytest.mark.parametrize(
    ("stages", "room", "overlap", "weight", "chosen"),
    [
        ({0: HEAVY, 1: LIGHT}, ROOM, 0.0, 1.0, {0}),
        ({0: LIGHT}, ROOM, 0.0, 0.0, set()),
        ({0: HEAVY, 1: DEAR}, ROOM, 0.0, 1.0, {0}),  # 1 is as fast, and costs more than it gains
        ({0: HEAVY, 1: DEAR}, ROOM, 0.0, 0.0, {0, 1}),  # only time counts
        ({0: SLOW}, ROOM, 0.0, 0.0, set()),  # 9 seconds of waiting for 8 of work
        ({0: SLOW, 1: LIGHT}, ROOM, 1.0, 0.0, {1}),  # the work for 0 hides the wait for 1
        ({0: HEAVY}, ROOM._replace(slots=1), 0.0, 1.0, set()),  # one call after the other
        ({0: HEAVY}, ROOM._replace(threads=100), 0.0, 0.0, {0}),
        (
            {0: HEAVY},
            ROOM._replace(threads=100, rent=1e-9),
            0.0,
            1.0,
            set(),
        ),  # twice as fast at far more than twice the price
    ],
)
def test_the_decision(
    stages: dict[int, StageTimes], room: Room, overlap: float, weight: float, chosen: set[int]
) -> None:
    assert decide(stages, room, 0.1, overlap=overlap, price_weight=weight).on_functions == chosen


def test_waits_that_other_epochs_hide_cost_nothing() -> None:
    """The same stage: 9 seconds of waiting beside 20 of gathers."""
    assert decide({0: SLOW}, ROOM, 20.0, overlap=0.0, price_weight=0.0).on_functions == set()
    found = decide({0: SLOW}, ROOM, 20.0, overlap=1.0, price_weight=0.0)
    assert found.on_functions == {0}
    assert (found.working, found.waiting, found.seconds) == (20.0, 9.0, 20.0)


def test_the_hidden_share_is_read_off_an_epoch() -> None:
    found = expected({0: SLOW}, {0}, ROOM, 20.0, 0.0)
    assert [found.overlap(seconds) for seconds in (40.0, 29.0, 24.5, 20.0, 1.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert expected({0: SLOW}, set(), ROOM, 20.0, 0.0).overlap(20.0) == 0.0


def test_price_is_that_of_the_server_and_of_all_calls() -> None:
    found = expected({0: HEAVY, 1: LIGHT}, {0}, ROOM, 0.1, 0.0)
    assert found.seconds == pytest.approx(0.1 + 0.5 + 8 * 0.001)
    assert found.dollars == pytest.approx(found.seconds * 1e-5 + 16e-6)


SECONDS = st.floats(1e-4, 10.0)
STAGES = st.lists(st.builds(StageTimes, st.integers(1, 64), SECONDS, SECONDS, st.floats(0, 1e-3)), max_size=6)


@given(STAGES, st.builds(Room, st.integers(1, 16), st.integers(1, 64), st.floats(1e-7, 1e-3)), SECONDS, st.floats(0, 2))
def test_no_placement_is_better(stages: list[StageTimes], room: Room, graph: float, weight: float) -> None:
    numbered = dict(enumerate(stages))
    found = decide(numbered, room, graph, overlap=0.0, price_weight=weight).objective(weight)
    for count in range(len(stages) + 1):
        for chosen in itertools.combinations(numbered, count):
            other = expected(numbered, set(chosen), room, graph, 0.0).objective(weight)
            assert found <= other * (1 + 1e-9)


@given(STAGES, st.builds(Room, st.integers(1, 16), st.integers(1, 64), st.floats(1e-7, 1e-3)), SECONDS, st.floats(0, 1))
def test_neither_all_nor_none_is_better_where_waits_are_hidden(
    stages: list[StageTimes], room: Room, graph: float, overlap: float
) -> None:
    numbered = dict(enumerate(stages))
    for weight in (0.0, 1.0):
        found = decide(numbered, room, graph, overlap=overlap, price_weight=weight).objective(weight)
        for chosen in (set[int](), set(numbered)):
            assert found <= expected(numbered, chosen, room, graph, overlap).objective(weight) * (1 + 1e-9)
