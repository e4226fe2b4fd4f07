"""Work on threads: where it runs, where errors go, and what threads leave behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from dorylax.clock import RealClock
from dorylax.clock.real import MOST_IN_LOOP


def test_threads_are_started_as_they_are_needed():
    with RealClock() as clock:
        workers = clock.workers("graph", 8)

        async def one_after_another():
            return [(await workers.run(threading.get_ident, seconds=0.0, order=())).value for _ in range(20)]

        assert len(set(clock.run(one_after_another()))) == 1
        assert len([thread for thread in threading.enumerate() if thread.name.startswith("graph")]) == 1


def test_a_thread_that_cannot_be_set_up_answers_with_the_reason():
    def fail():
        raise OSError("no settings")

    with RealClock(fail) as clock:
        workers = clock.workers("graph", 1)
        for _ in range(2):
            with pytest.raises(OSError, match="no settings"):
                clock.run(workers.run(lambda: 1, seconds=0.0, order=()))


def test_what_was_given_up_before_it_began_is_not_done():
    with RealClock() as clock:
        workers, leave, done = clock.workers("graph", 1), threading.Event(), []

        async def main():
            first = asyncio.ensure_future(workers.run(leave.wait, seconds=0.0, order=()))
            second = asyncio.ensure_future(workers.run(lambda: done.append("second"), seconds=0.0, order=()))
            await asyncio.sleep(0.01)
            second.cancel()
            leave.set()
            await first
            await workers.run(lambda: done.append("third"), seconds=0.0, order=())

        clock.run(main())
    assert done == ["third"]


def test_an_idle_thread_keeps_no_arrays():
    with RealClock() as clock:
        workers = clock.workers("graph", 1)

        def use():
            rows = np.ones(8)
            found = weakref.ref(rows)
            timed = clock.run(workers.run(lambda: float(rows.sum()), seconds=0.0, order=()))
            assert timed.value == 8
            return found

        rows = use()
        until = time.monotonic() + 30
        while rows() is not None and time.monotonic() < until:  # the thread may just be on its way back to its queue
            gc.collect()
            time.sleep(0.01)
        assert rows() is None


async def where(workers, effort):
    """Whether the loop's own thread did some work."""
    loop = threading.get_ident()
    return (await workers.run(threading.get_ident, seconds=0.0, order=(), effort=effort)).value == loop


def test_where_there_is_one_core_the_loop_does_what_takes_little():
    with RealClock(one_core=True) as clock:
        workers = clock.workers("graph", 1)
        assert clock.run(where(workers, MOST_IN_LOOP))
        assert not clock.run(where(workers, MOST_IN_LOOP + 1))
        assert not clock.run(where(workers, None))
        assert not clock.run(where(clock.workers("more", 2), 0))  # whoever asks for two at a time gets them
    with RealClock() as clock:
        assert not clock.run(where(clock.workers("graph", 1), 0))


def test_the_loop_overtakes_nobody():
    """What takes little waits for what was asked of the same workers before, also where that came in the last turn."""
    with RealClock(one_core=True) as clock:
        workers, leave, done = clock.workers("graph", 1), threading.Event(), []

        async def main():
            little = asyncio.ensure_future(workers.run(lambda: done.append("little"), seconds=0.0, order=(), effort=0))
            much = asyncio.ensure_future(
                workers.run(lambda: (leave.wait(5), done.append("much")), seconds=0.0, order=())
            )
            await asyncio.sleep(0.01)
            assert not done
            more = asyncio.ensure_future(workers.run(lambda: done.append("more"), seconds=0.0, order=(), effort=0))
            await asyncio.sleep(0.01)
            assert not done
            leave.set()
            await asyncio.gather(little, much, more)

        clock.run(main())
    assert done == ["much", "little", "more"]


def test_the_loop_sends_before_it_works():
    with RealClock(one_core=True) as clock:
        workers, done = clock.workers("graph", 1), []

        async def main():
            asyncio.get_running_loop().call_soon(done.append, "sent")
            await workers.run(lambda: done.append("worked"), seconds=0.0, order=(), effort=0)

        clock.run(main())
    assert done == ["sent", "worked"]


def test_what_the_loop_was_to_do_can_be_given_up_and_may_fail():
    with RealClock(one_core=True) as clock:
        workers, done = clock.workers("graph", 1), []

        async def main():
            given_up = asyncio.ensure_future(workers.run(lambda: done.append(1), seconds=0.0, order=(), effort=0))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(ZeroDivisionError):
                await workers.run(lambda: 1 / 0, seconds=0.0, order=(), effort=0)

        clock.run(main())
    assert not done
