from __future__ import annotations

import numpy as np
import pytest

from dorylax.pipeline.asynchrony import BlocksRead, ExponentialMean, FreshShare
from dorylax.pipeline.buffers import blend, shares

# Blocks 0 to 3 are of the reader's server, 2 is its own, and it reads nothing of 1 and 5.
READ = BlocksRead(np.array([7, 0, 90, 1, 3, 0, 2]), 2, np.arange(7) < 4)
OTHERS = [0, 3, 4, 6]


@pytest.mark.parametrize(
    ("share", "needed"), [(1.0, 4), (0.76, 4), (0.75, 3), (0.74, 3), (0.51, 3), (0.5, 2), (0.01, 1)]
)
def test_a_share_of_the_blocks_that_others_write(share: float, needed: int) -> None:
    quorum = FreshShare(share).quorum(READ)
    assert quorum is not None
    assert (quorum.blocks.tolist(), quorum.weights.tolist(), quorum.needed) == (OTHERS, [1] * 4, needed)


def test_only_the_reader_s_server_counts_where_ghosts_may_be_late() -> None:
    quorum = FreshShare(1.0, local=True).quorum(READ)
    assert quorum is not None
    assert (quorum.blocks.tolist(), quorum.needed) == ([0, 3], 2)


def test_no_share_is_no_quorum() -> None:
    assert FreshShare(0.0).quorum(READ) is None


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7])
def test_a_share_is_the_number_that_was_written(share: float) -> None:
    """Not the nearest one in binary, which may be more."""
    quorum = FreshShare(share).quorum(BlocksRead(np.ones(101, np.int64), 0, np.ones(101, bool)))
    assert quorum is not None
    assert quorum.needed == round(share * 100)


def test_who_reads_nobody_elses_rows_waits_for_nothing() -> None:
    assert FreshShare(1.0).quorum(BlocksRead(np.array([0, 0, 9]), 2, np.ones(3, bool))) is None


def test_blocks_may_stand_for_several():
    blocks = np.array([1, 1, 1, 40, 1, 7, 2])
    quorum = FreshShare(0.5).quorum(READ._replace(blocks=blocks))
    assert quorum is not None
    assert (quorum.blocks.tolist(), quorum.weights.tolist()) == ([0, 3, 4, 6], [1, 40, 1, 2])
    assert quorum.needed == 22


ROWS = np.random.default_rng(0).normal(size=(6, 4, 2)).astype(np.float32)  # six epochs of four rows


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95])
def test_what_is_held_is_the_corrected_mean(decay: float) -> None:
    held, times, mean = np.full((4, 2), 9, np.float32), np.zeros(1, np.int64), np.zeros((4, 2))
    for epoch, rows in enumerate(ROWS, start=1):
        blend(held, slice(0, 4), rows, shares(times, slice(0, 1), ExponentialMean(decay)))
        mean = decay * mean + (1 - decay) * rows
        np.testing.assert_allclose(held, mean / (1 - decay**epoch), rtol=1e-5, atol=1e-6)
        assert held.dtype == np.float32
    assert times == 6


def test_what_comes_first_is_held_bit_for_bit() -> None:
    held = np.full((4, 2), np.nan, np.float32)
    blend(held, slice(0, 4), ROWS[0], shares(np.zeros(1, np.int64), slice(0, 1), ExponentialMean(0.95)))
    assert held.tobytes() == ROWS[0].tobytes()


def test_what_has_to_be_exact_is_and_begins_the_mean_anew() -> None:
    held, times = np.zeros((4, 2), np.float32), np.zeros(1, np.int64)
    for rows in ROWS[:3]:
        blend(held, slice(0, 4), rows, shares(times, slice(0, 1), ExponentialMean(0.5)))
    blend(held, slice(0, 4), ROWS[3], shares(times, slice(0, 1), None))
    np.testing.assert_array_equal(held, ROWS[3])
    blend(held, slice(0, 4), ROWS[4], shares(times, slice(0, 1), ExponentialMean(0.5)))
    np.testing.assert_allclose(held, ROWS[3] / 3 + 2 * ROWS[4] / 3, rtol=1e-5)


def test_rows_of_different_ages_each_have_their_own_mean() -> None:
    """Sums of peers come one by one."""
    held, times = ROWS[0].copy(), np.array([1, 1, 1, 1])
    some = np.array([0, 2])
    blend(held, some, ROWS[1][some], shares(times, some, ExponentialMean(0.5)))
    blend(held, np.arange(4), ROWS[2], shares(times, np.arange(4), ExponentialMean(0.5)))
    assert times.tolist() == [3, 2, 3, 2]
    np.testing.assert_allclose(held[1], (ROWS[0] / 4 + ROWS[2] / 2)[1] / 0.75, rtol=1e-5)
    np.testing.assert_allclose(held[2], (ROWS[0] / 8 + ROWS[1] / 4 + ROWS[2] / 2)[2] / 0.875, rtol=1e-5)


def test_whole_numbers_are_replaced() -> None:
    held = np.array([[1], [2]])
    blend(held, slice(0, 2), np.array([[4], [4]]), shares(np.ones(1, np.int64), slice(0, 1), ExponentialMean(0.5)))
    assert held.tolist() == [[4], [4]]
