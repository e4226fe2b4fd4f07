from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.stamps import Quorum, Stamps


def waits(stamps: Stamps, epoch: int, quorum: Quorum | None = None) -> bool:
    """Whether somebody who wants this epoch would have to wait now."""

    async def scenario() -> bool:
        task = asyncio.create_task(stamps.wait(epoch, quorum))
        await asyncio.sleep(0)
        task.cancel()
        return (await asyncio.gather(task, return_exceptions=True))[0] is not None

    return asyncio.run(scenario())


@pytest.mark.parametrize("epoch", [-1, 0])
def test_what_was_never_written_is_waited_for(epoch: int) -> None:
    assert waits(Stamps(1), epoch)


def quorum(weights: list[int], needed: int) -> Quorum:
    """Of blocks 0, 2, 4, …"""
    return Quorum(2 * np.arange(len(weights)), np.array(weights), needed)


@pytest.mark.parametrize(
    ("weights", "needed", "epoch", "has_to_wait"),
    [
        ([1, 1, 1], 2, 3, False),  # blocks 0 and 2 are of epochs 3 and 4
        ([1, 1, 1], 3, 3, True),
        ([1, 1, 1], 2, 4, True),
        ([1, 5, 1], 5, 4, False),
        ([1, 5, 1], 6, 4, True),
        ([1, 1, 1], 0, 9, False),
    ],
)
def test_a_quorum_is_waited_for(weights: list[int], needed: int, epoch: int, has_to_wait: bool) -> None:
    stamps = Stamps(5)
    stamps.epochs[:] = 3, 9, 4, 9, 2
    stamps.changed()
    assert waits(stamps, epoch, quorum(weights, needed)) == has_to_wait


@pytest.mark.parametrize("seed", range(20))
def test_who_waits_for_a_quorum_is_woken_as_if_all_looked_each_time(seed: int) -> None:
    """Blocks of any weights, written together or one after the other, some of them again."""
    rng = np.random.default_rng(seed)

    async def scenario() -> None:
        stamps = Stamps(12)
        quorums = []
        for _ in range(8):
            blocks = rng.choice(12, rng.integers(1, 13), replace=False)
            weights = rng.choice([0, 1, 2, 30], len(blocks))
            quorums.append((int(rng.integers(0, 3)), Quorum(blocks, weights, int(rng.integers(0, weights.sum() + 1)))))
        tasks = [asyncio.create_task(stamps.wait(*each)) for each in quorums]
        await asyncio.sleep(0)
        while stamps.epochs.min() < 2:
            written = rng.choice(12, rng.integers(1, 4), replace=False)
            later = np.minimum(stamps.epochs[written] + rng.integers(0, 2, len(written)), 2)
            if rng.integers(2):
                stamps.epochs[written] = later
                stamps.changed(len(written))
            else:
                for block, epoch in zip(written.tolist(), later.tolist(), strict=True):
                    if epoch > stamps.epochs[block]:
                        stamps.advance(block, epoch)
            await asyncio.sleep(0)
            new = [stamps.epochs[quorum.blocks] >= epoch for epoch, quorum in quorums]
            enough = [q.weights[mine].sum() >= q.needed for mine, (_, q) in zip(new, quorums, strict=True)]
            assert [task.done() for task in tasks] == enough

    asyncio.run(scenario())


def test_where_nothing_can_come_nothing_is_waited_for() -> None:
    assert not waits(Stamps(0), 7)


def test_who_has_given_up_is_forgotten() -> None:
    async def scenario() -> None:
        stamps = Stamps(1)
        gone, going, there = (asyncio.create_task(stamps.wait(1)) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert len(stamps._waiting) == 2
        going.cancel()  # and has not woken when the rows come
        stamps.epochs[0] = 1
        stamps.changed()
        await there

    asyncio.run(scenario())


@given(
    count=st.integers(1, 5),
    writes=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.booleans()), max_size=30),
)
def test_blocks_that_advance_one_by_one_wake_whom_a_look_at_all_would(
    count: int, writes: list[tuple[int, int, bool]]
) -> None:
    async def scenario() -> None:
        stamps = Stamps(count)
        stamps.epochs[:] = 0
        stamps.changed()
        waiting = {epoch: asyncio.create_task(stamps.wait(epoch)) for epoch in range(1, 12)}
        await asyncio.sleep(0)
        for block, by, alone in writes:
            place = block % count
            if alone:
                stamps.advance(place, int(stamps.epochs[place]) + by)
            else:
                stamps.epochs[place] += by
                stamps.changed()
            for _ in range(2):
                await asyncio.sleep(0)
            assert [epoch for epoch, task in waiting.items() if task.done()] == [
                epoch for epoch in waiting if stamps.epochs.min() >= epoch
            ]
        for task in waiting.values():
            task.cancel()
        await asyncio.gather(*waiting.values(), return_exceptions=True)

    asyncio.run(scenario())
