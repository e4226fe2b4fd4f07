from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.clock.virtual_loop import VirtualLoop

# Of each callback: how many others it makes ready, and whether it stops the loop.
CALLS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=20)


def called(loop: asyncio.AbstractEventLoop, calls: list[tuple[int, bool]]) -> list[list[int]]:
    """What runs until each stop, where the first callback makes others ready, and these make others ready in turn."""
    left, runs, last = iter(range(1, len(calls))), list[list[int]](), len(calls) - 1

    def call(number: int) -> None:
        runs[-1].append(number)
        for _ in range(calls[number][0]):
            if (following := next(left, None)) is not None:
                loop.call_soon(call, following)
        if calls[number][1]:
            loop.stop()

    loop.call_soon(call, 0)
    for _ in range(len(calls) + 1):
        runs.append([])
        loop.call_soon(lambda: loop.call_soon(loop.stop))
        loop.run_forever()
    assert max(map(max, filter(None, runs))) <= last
    return runs


@given(calls=CALLS)
def test_what_is_ready_runs_as_on_asyncios_own_loop(calls: list[tuple[int, bool]]) -> None:
    with closing(asyncio.new_event_loop()) as loop:
        expected = called(loop, calls)
    with closing(VirtualLoop(0.0)) as loop:
        assert called(loop, calls) == expected


def test_a_stop_before_it_runs_lets_only_what_is_ready_run() -> None:
    happened: list[str] = []
    with closing(VirtualLoop(0.0)) as loop:
        loop.happen_at(1.0, (), lambda: happened.append("event"))
        loop.call_soon(happened.append, "ready")
        loop.stop()
        loop.run_forever()
        assert happened == ["ready"]
        assert loop.time() == 0.0
        loop.happen_at(2.0, (), loop.stop)
        loop.run_forever()
    assert happened == ["ready", "event"]


def test_what_was_cancelled_is_not_called() -> None:
    happened: list[Any] = []
    with closing(VirtualLoop(0.0)) as loop:
        loop.set_exception_handler(lambda _, context: happened.append(context))
        loop.call_soon(happened.append, "cancelled").cancel()
        forgotten = loop.happen_at(1.0, (), lambda: happened.append("forgotten"))
        loop.call_at(1.0, happened.append, "timer").cancel()
        loop.forget(forgotten)
        loop.happen_at(2.0, (), loop.stop)
        loop.run_forever()
        loop.forget(forgotten)  # changes nothing
        assert loop.time() == 2.0
    assert happened == []


def test_calls_before_the_next_event_come_after_all_that_is_ready() -> None:
    happened: list[str] = []
    with closing(VirtualLoop(0.0)) as loop:

        def event() -> None:
            loop.before_next(lambda: happened.append("before"))
            loop.call_soon(loop.call_soon, happened.append, "ready")

        loop.happen_at(1.0, (0,), event)
        loop.happen_at(1.0, (1,), lambda: happened.append("next"))
        loop.happen_at(2.0, (), loop.stop)
        loop.run_forever()
    assert happened == ["ready", "before", "next"]


def test_another_thread_may_stop_it() -> None:
    """As Ctrl-C does where the loop runs beside another one."""
    rounds = 0
    with closing(VirtualLoop(0.0)) as loop:

        def again() -> None:
            nonlocal rounds
            rounds += 1
            loop.happen_at(loop.now + 1.0, (), again)

        again()
        stopper = threading.Timer(0.05, loop.call_soon_threadsafe, (loop.stop,))
        stopper.start()
        loop.run_forever()
        stopper.join()
    assert rounds > 1


@pytest.mark.parametrize("how", ["call_soon", "call_soon_threadsafe"])
def test_nothing_is_called_on_a_closed_loop(how: str) -> None:
    loop: Any = VirtualLoop(0.0)
    loop.call_soon(print)
    loop.close()
    with pytest.raises(RuntimeError, match="the loop is closed"):
        getattr(loop, how)(print)
