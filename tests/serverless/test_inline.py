from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dorylax.clock import Clock, RealClock, VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, TimeModel, Variation
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.backends.inline import InlineBackend
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask

CLOCKS = {"real": RealClock, "virtual": VirtualClock}
STEADY = dataclasses.replace(
    DEFAULT_CLUSTER, function=dataclasses.replace(DEFAULT_CLUSTER.function, variation=Variation(0.0, 0.0, 1.0))
)
OVERHEAD = DEFAULT_CLUSTER.function.overhead


def task(interval: int, *operands: Any, server: int = 0, stage: int = 3, **cost: int) -> TensorTask:
    given = {"flops": 0, "bytes_in": 0, "bytes_out": 0} | cost
    sources = (OperandSource("free"),) * len(operands)
    return TensorTask(
        TaskKey(0, interval, stage, 0),
        server,
        0,
        (),
        operands,
        sources,
        (ResultTarget("free"),),
        count=1,
        size=1,
        **given,
    )


def run(
    clock: Clock, function: Callable[..., Sequence[Any]], tasks: Sequence[TensorTask], *, slots: int = 2
) -> list[TensorResult]:
    times = TimeModel(STEADY, 0) if clock.kind == "virtual" else None
    backend = InlineBackend({3: function}, clock, slots=slots, num_servers=2, times=times)

    async def all_tasks() -> list[TensorResult]:
        return await asyncio.gather(*(backend.run(one, 0) for one in tasks))

    return clock.run(all_tasks())


@pytest.mark.parametrize("kind", CLOCKS)
def test_a_server_has_no_more_tasks_at_a_time_than_slots(kind: str) -> None:
    with CLOCKS[kind]() as clock:
        found = run(clock, lambda x: (x,), [task(k, k) for k in range(7)], slots=2)
    assert [int(result.values[0]) for result in found] == list(range(7))
    for moment in [result.start for result in found]:
        assert sum(result.start <= moment < result.end for result in found) <= 2


def test_what_takes_little_is_done_by_the_loop_of_one_core() -> None:
    with RealClock(one_core=True) as clock:
        for effort, here in ((0, True), (None, False)):
            (found,) = run(
                clock, lambda: (threading.get_ident(),), [dataclasses.replace(task(0), effort=effort)], slots=1
            )
            assert (int(found.values[0]) == threading.get_ident()) == here


def test_slots_are_of_each_server() -> None:
    with VirtualClock() as clock:
        found = run(clock, lambda x: (x,), [task(k, k, server=k % 2) for k in range(4)], slots=1)
    assert [result.start for result in found] == [0.0, 0.0, OVERHEAD, OVERHEAD]


def test_virtual_seconds_are_those_of_the_time_model() -> None:
    costs = {"flops": 10**9, "bytes_in": 10**6, "bytes_out": 10**5}
    with VirtualClock(start=5.0) as clock:
        (found,) = run(clock, lambda x: (x,), [task(0, 0, **costs)])
    expected = TimeModel(STEADY, 0).tensor_task(TaskKey(0, 0, 3, 0), **costs)
    assert expected > OVERHEAD
    assert (found.start, found.end) == (5.0, 5.0 + expected)
