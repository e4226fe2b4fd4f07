from __future__ import annotations

import copy
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.controller import Autotuner

QUEUES = st.lists(st.integers(0, 200), max_size=60)


def follow(tuner: Autotuner, queues: list[int]) -> list[int]:
    return [tuner.observe(queued) for queued in queues]


def test_a_queue_that_grows_means_fewer() -> None:
    # By 1/8 first, and by 1 more each time.
    assert follow(Autotuner(start=40, most=100), [10, 20, 30, 40]) == [35, 29, 22, 14]


def test_the_step_halves_where_the_direction_changes() -> None:
    assert follow(Autotuner(start=40, most=100), [10, 0, 10, 0]) == [35, 37, 36, 37]
    assert Autotuner(start=4, most=100).observe(10) == 3  # never by less than 1


def test_a_queue_of_one_is_as_good_as_an_empty_one() -> None:
    assert Autotuner(start=40, most=100).observe(1) == 40
    assert Autotuner(start=40, most=100).observe(2) == 35


def test_a_queue_that_drains_means_more() -> None:
    tuner = Autotuner(start=40, most=100)
    low = tuner.observe(80)
    limits = follow(tuner, [60, 40, 20])
    assert all(after > before for before, after in itertools.pairwise([low, *limits]))


def test_idle_graph_threads_mean_more_until_there_are_most() -> None:
    assert follow(Autotuner(start=1, most=30), [0] * 40)[-1] == 30


def test_noise_means_nothing_but_adds_up() -> None:
    tuner = Autotuner(start=40, most=100)
    limit = tuner.observe(80)
    assert follow(tuner, [85, 75, 88, 72]) == [limit] * 4
    assert follow(tuner, [83, 86, 89, 92])[-1] < limit  # slowly, it has grown by more than 1/8


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20), QUEUES)
def test_the_limit_keeps_its_bounds(least: int, above: int, further: int, queues: list[int]) -> None:
    start, most = least + above, least + above + further
    tuner = Autotuner(start=start, least=least, most=most)
    assert tuner.limit == start
    for limit in follow(tuner, queues):
        assert least <= limit <= most


@given(QUEUES, st.integers(0, 200), st.integers(0, 200))
def test_a_longer_queue_never_means_more(before: list[int], one: int, other: int) -> None:
    tuner = Autotuner(start=50, most=100)
    follow(tuner, before)
    short, long = copy.deepcopy(tuner), copy.deepcopy(tuner)
    assert short.observe(min(one, other)) >= long.observe(max(one, other))


@given(QUEUES, st.integers(1, 200))
def test_settles_where_the_queue_is_steady(before: list[int], queued: int) -> None:
    tuner = Autotuner(start=50, most=100)
    follow(tuner, before)
    tuner.observe(queued)
    assert len(set(follow(tuner, [queued] * 20))) == 1


@given(QUEUES, st.integers(1, 100), st.integers(0, 100))
def test_settles_within_one_where_the_queue_swings(before: list[int], high: int, low: int) -> None:
    tuner = Autotuner(start=50, most=100)
    follow(tuner, before)
    follow(tuner, [high, low] * 20)
    limits = follow(tuner, [high, low] * 20)
    if low:  # an empty queue asks for more each time
        assert max(limits) - min(limits) <= 1


@pytest.mark.parametrize("needed", [3, 12, 47])
def test_finds_what_graph_threads_need_and_stays_there(needed: int) -> None:
    """64 intervals go round: tensor tasks answer at the rate of the limit, graph tasks are done at the rate `needed`."""
    tuner, queued, limits = Autotuner(start=60, most=64), 0, []
    for _ in range(400):
        calling = min(tuner.limit, 64 - queued)
        queued = min(64, max(0, queued + calling - needed))
        limits.append(tuner.observe(queued))
    settled = limits[-100:]
    assert min(settled) >= needed - 2
    assert max(settled) - min(settled) <= 2


@given(QUEUES, QUEUES)
def test_goes_on_from_a_checkpoint(before: list[int], after: list[int]) -> None:
    one, other = Autotuner(start=50, most=100), Autotuner(start=50, most=100)
    follow(one, before)
    other.restore(json.loads(json.dumps(one.state())))
    assert other.limit == one.limit
    assert follow(one, after) == follow(other, after)


def test_a_checkpoint_of_other_bounds_is_cut_to_these() -> None:
    one, other = Autotuner(start=50, most=100), Autotuner(start=2, most=10)
    other.restore(one.state())
    assert other.limit == 10


@given(QUEUES, QUEUES)
def test_it_may_be_lowered(before: list[int], after: list[int]) -> None:
    tuner = Autotuner(start=50, most=100)
    follow(tuner, before)
    tuner.lower(7)
    assert tuner.limit <= 7
    assert max(follow(tuner, after), default=0) <= 7
    tuner.lower(9)
    assert max(follow(tuner, [0] * 100)) == 7


@pytest.mark.parametrize("bounds", [(0, 1, 2), (3, 2, 4), (1, 5, 4)])
def test_refuses_bounds_in_disorder(bounds: tuple[int, int, int]) -> None:
    least, start, most = bounds
    with pytest.raises(ValueError, match=f"1 ≤ least ≤ start ≤ most, got {least}, {start}, {most}"):
        Autotuner(least=least, start=start, most=most)


def test_refuses_a_negative_queue() -> None:
    with pytest.raises(ValueError, match="≥ 0 tasks, got -1"):
        Autotuner(start=1, most=1).observe(-1)
