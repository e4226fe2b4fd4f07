from __future__ import annotations

import asyncio

import pytest

from dorylax.pipeline.stamps import Stamps


def waits(stamps: Stamps, epoch: int) -> bool:
    """Whether somebody who wants this epoch would have to wait now."""

    async def scenario() -> bool:
        task = asyncio.create_task(stamps.wait(epoch))
        await asyncio.sleep(0)
        task.cancel()
        return (await asyncio.gather(task, return_exceptions=True))[0] is not None

    return asyncio.run(scenario())


def test_what_is_there_is_not_waited_for() -> None:
    stamps = Stamps(2)
    stamps.epochs[:] = 3, 4
    stamps.changed()
    assert [waits(stamps, epoch) for epoch in (2, 3, 4)] == [False, False, True]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_what_was_never_written_is_waited_for(epoch: int) -> None:
    assert waits(Stamps(1), epoch)


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
