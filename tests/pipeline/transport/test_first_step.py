from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dorylax.pipeline.transport.first_step import begin, finished


def test_what_need_not_wait_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    begun = begin(work())
    assert begun == (7, None)
    assert asyncio.run(finished(begun)) == 7


def test_what_waits_is_finished_by_whoever_awaits_it() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        seen = []

        async def work() -> Any:
            seen.append(await first)
            await asyncio.sleep(0)
            return await second

        begun = begin(work())
        assert begun.rest is not None
        first.set_result(1)
        assert not seen
        rest = asyncio.ensure_future(finished(begun))
        while not seen:
            await asyncio.sleep(0)
        assert seen == [1]
        second.set_result(2)
        assert await rest == 2

    asyncio.run(test())


def test_errors_come_out_where_they_are_raised() -> None:
    async def fails_at_once() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        begin(fails_at_once())

    async def test() -> None:
        awaited = asyncio.get_running_loop().create_future()

        async def work() -> str:
            try:
                await awaited
            except ValueError as error:
                return f"seen: {error}"
            raise AssertionError

        begun = begin(work())
        awaited.set_exception(ValueError("later"))
        assert await finished(begun) == "seen: later"

    asyncio.run(test())


def test_what_is_cancelled_sees_it() -> None:
    async def test() -> None:
        seen = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        rest = asyncio.ensure_future(finished(begin(work())))
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest
        assert seen == ["cancelled"]

    asyncio.run(test())
