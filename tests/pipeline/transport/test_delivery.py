from __future__ import annotations

import asyncio

from dorylax.pipeline.transport.delivery import Window


def test_no_more_is_on_its_way_than_fits_and_order_is_kept() -> None:
    async def main() -> None:
        window, gone, there = Window(10), [], [asyncio.Event() for _ in range(5)]

        async def send(number: int, num_bytes: int) -> None:
            await window.enter(num_bytes)
            gone.append(number)
            await there[number].wait()
            window.leave(num_bytes)

        async def now(*expected: int) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            assert gone == [*expected]

        tasks = [asyncio.create_task(send(number, size)) for number, size in enumerate((6, 4, 30, 1, 1))]
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
