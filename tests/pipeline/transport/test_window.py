"""What is on its way is bounded, in order, and something always goes."""

from __future__ import annotations

import asyncio

import pytest

from dorylax.pipeline.transport.window import Window


def test_no_more_is_on_its_way_than_fits_and_order_is_kept() -> None:
    async def main() -> None:
        window, gone, there = Window(10), [], [asyncio.Event() for _ in range(5)]

        async def send(number: int, num_bytes: int) -> None:
            async with window.room(num_bytes):
                gone.append(number)
                await there[number].wait()

        sizes = (6, 4, 30, 1, 1)
        tasks = [asyncio.create_task(send(number, size)) for number, size in enumerate(sizes)]

        async def now(*expected: int) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            assert gone == [*expected]

        await now(0, 1)
        there[0].set()
        await now(0, 1)  # the third is more than all: it goes alone, and nothing overtakes it
        there[1].set()
        await now(0, 1, 2)
        there[2].set()
        await now(0, 1, 2, 3, 4)
        for event in there:
            event.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_what_fails_or_is_cancelled_gives_its_room_back() -> None:
    async def main() -> None:
        window = Window(10)
        with pytest.raises(ValueError, match="lost"):
            async with window.room(10):
                raise ValueError("lost")
        async with window.room(8):

            async def wait() -> None:
                async with window.room(8):
                    raise AssertionError

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        async with window.room(10):
            pass

    asyncio.run(asyncio.wait_for(main(), 5))
