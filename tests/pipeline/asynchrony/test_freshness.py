from __future__ import annotations

import numpy as np
import pytest

from dorylax.pipeline.asynchrony import BlocksRead, FreshShare

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
