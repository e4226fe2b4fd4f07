from __future__ import annotations

import asyncio

import numpy as np
import pytest

from dorylax.pipeline.stamps import Quorum, Stamps


@pytest.mark.parametrize("seed", range(40))
def test_who_waits_is_woken_as_if_all_looked_each_time(seed: int) -> None:
    """For all blocks, or for a quorum of any weights; blocks are written together or one by one, some of them again."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 13))

    async def scenario() -> None:
        stamps = Stamps(count)
        wanted: list[tuple[int, Quorum | None]] = [(epoch, None) for epoch in range(-1, 3)]
        for _ in range(8):
            blocks = rng.choice(count, rng.integers(1, count + 1), replace=False)
            weights = rng.choice([0, 1, 2, 30], len(blocks))
            quorum = Quorum(blocks, weights, int(rng.integers(0, weights.sum() + 1)))
            wanted.append((int(rng.integers(0, 3)), quorum))
        wait = [asyncio.create_task(stamps.wait(*each)) for each in wanted]
        all_blocks = Quorum(np.arange(count), np.ones(count, int), count)

        async def woken() -> list[bool]:
            for _ in range(2):
                await asyncio.sleep(0)
            every = [(epoch, quorum or all_blocks) for epoch, quorum in wanted]
            expected = [q.weights[stamps.epochs[q.blocks] >= epoch].sum() >= q.needed for epoch, q in every]
            assert [task.done() for task in wait] == expected
            return expected

        assert (await woken())[:4] == [False] * 4  # nothing was ever written
        while stamps.epochs.min() < 2:
            written = rng.choice(count, rng.integers(1, min(count, 3) + 1), replace=False)
            later = np.clip(stamps.epochs[written] + rng.integers(0, 3, len(written)), -1, 2)
            if rng.integers(2):
                stamps.epochs[written] = later
                stamps.changed(len(written))
            else:
                for block, epoch in zip(written.tolist(), later.tolist(), strict=True):
                    if epoch > stamps.epochs[block]:
                        stamps.advance(block, epoch)
            await woken()
        await asyncio.gather(*(stamps.wait(*each) for each in wanted))  # what is there when somebody comes

    asyncio.run(scenario())


def test_who_has_given_up_is_forgotten_and_where_nothing_can_come_nothing_is_waited_for() -> None:
    async def scenario() -> None:
        await Stamps(0).wait(7)
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
