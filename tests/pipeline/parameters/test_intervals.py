"""What a parameter server keeps of each interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.errors import RunError
from dorylax.pipeline.parameters.records import Pulled, Push
from dorylax.pipeline.parameters.server import Assembly, EpochsSeen, Stash

PAIRS = st.tuples(st.integers(0, 2), st.integers(2, 8))


@given(st.lists(PAIRS))
def test_like_a_set(pairs: list[tuple[int, int]]) -> None:
    seen, expected = EpochsSeen(2), set[tuple[int, int]]()
    for pair in pairs:
        assert (pair in seen) == (pair in expected)
        seen.add(*pair)
        expected.add(pair)
    for interval in range(4):
        assert (interval, 1) in seen
        for epoch in range(2, 10):
            assert ((interval, epoch) in seen) == ((interval, epoch) in expected)


PUSHES = [Push(k, epoch, stage, {"w": (k, epoch, stage)}) for k in range(2) for epoch in (3, 4) for stage in (2, 5, 7)]


@given(st.permutations(PUSHES * 2))
def test_each_interval_and_epoch_is_whole_once(pushes: list[Push]) -> None:
    assembly = Assembly([7, 2, 5], first=3)
    came: set[Push] = set()
    whole = {}
    for push in pushes:
        came.add(Push(*push[:3], None))
        sums = assembly.add(push)
        pair = push[:2]
        if sums is not None:
            assert pair not in whole
            whole[pair] = sums
        parts = sum(each[:2] == pair for each in came)
        assert (pair in whole) == (parts == 3)
    assert whole.keys() == {push[:2] for push in PUSHES}
    for pair, sums in whole.items():
        assert list(sums) == [2, 5, 7]
        assert all(sums[stage] == {"w": (*pair, stage)} for stage in sums)
    assert len(assembly) == 0


def test_repeats_keep_the_first_and_late_ones_start_nothing() -> None:
    assembly = Assembly([0, 1], first=1)
    assembly.add(Push(0, 1, 0, {"w": "first"}))
    assert len(assembly) == 1
    assembly.add(Push(0, 1, 0, {"w": "again"}))
    assert assembly.add(Push(0, 1, 1, {})) == {0: {"w": "first"}, 1: {}}
    assert assembly.add(Push(0, 1, 1, {})) is None
    assert assembly.add(Push(0, 0, 0, {})) is None
    assert len(assembly) == 0


def test_stages_are_checked() -> None:
    with pytest.raises(ValueError, match="at least one stage"):
        Assembly([], first=0)
    with pytest.raises(ValueError, match="stage 3 pushes no gradient: those that do are 0, 1"):
        Assembly([0, 1], first=0).add(Push(0, 0, 3, {}))


OLD, NEW = Pulled(3, {"w": 1}, {"n": 5}), Pulled(4, {"w": 2}, {"n": 6})


def test_the_first_pull_of_an_epoch_decides() -> None:
    stash = Stash(first=0)
    assert stash.pull(0, 0, OLD) is OLD
    assert stash.pull(0, 0, NEW) is OLD
    assert stash.pull(1, 0, NEW) is NEW
    assert len(stash) == 2
    assert stash.release(0, 0) is OLD
    assert stash.pull(0, 1, NEW) is NEW
    stash.release(0, 1)
    stash.release(1, 0)
    assert len(stash) == 0


def test_pulls_out_of_turn_are_refused() -> None:
    stash = Stash(first=1)
    with pytest.raises(RunError, match=r"interval 0 cannot pull weights for epoch 0: its gradient .* is complete"):
        stash.pull(0, 0, OLD)
    stash.pull(0, 1, OLD)
    with pytest.raises(RunError, match="epoch 2 before all of its gradient of epoch 1 is pushed"):
        stash.pull(0, 2, OLD)
    with pytest.raises(RunError, match="interval 0 pushed a gradient of epoch 2 without"):
        stash.release(0, 2)
    stash.release(0, 1)
    with pytest.raises(RunError, match=r"epoch 1: its gradient .* is complete"):
        stash.pull(0, 1, NEW)
    with pytest.raises(RunError, match="without having pulled"):
        stash.release(0, 1)
