from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.assembly import Assembly
from dorylax.pipeline.parameters.messages import Push

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
