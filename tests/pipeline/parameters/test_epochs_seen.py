from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.parameters.epochs_seen import EpochsSeen

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
