from __future__ import annotations

import asyncio

from dorylax.pipeline.pending import Pending


def test_who_waits_goes_on_when_nothing_is_under_way() -> None:
    async def test() -> None:
        pending = Pending()
        await pending.nothing()
        pending.begin()
        pending.begin()
        waiting = asyncio.ensure_future(pending.nothing())
        await asyncio.sleep(0)
        pending.end()
        await asyncio.sleep(0)
        assert not waiting.done()
        pending.end()
        await waiting

    asyncio.run(test())


def test_what_begins_before_who_waits_goes_on_is_waited_for() -> None:
    async def test() -> None:
        pending = Pending()
        pending.begin()
        waiting = asyncio.ensure_future(pending.nothing())
        await asyncio.sleep(0)
        pending.end()
        pending.begin()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        pending.end()
        await waiting

    asyncio.run(test())
