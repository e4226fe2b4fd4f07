from __future__ import annotations

import asyncio

import pytest

from dorylax.clock import RealClock, VirtualClock
from dorylax.cost import DEFAULT_CLUSTER, TimeModel
from dorylax.pipeline.parameters.endpoint import APPLY, FINISH
from dorylax.pipeline.parameters.workers import ParameterWorkers
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.server_counts import ParameterCounts
from dorylax.pipeline.timeline import Span

FEW, MANY = 4 * 10**6, 4 * 10**9
TIMES = TimeModel(DEFAULT_CLUSTER, seed=3)


def test_work_takes_what_the_model_says_one_after_another_on_a_server_and_beside_it_on_another() -> None:
    told: list[Span] = []
    recorder = Recorder({}, told.append)
    clock = VirtualClock()
    workers = ParameterWorkers(2, clock, TIMES, recorder)

    async def scenario() -> list[str]:
        return list(
            await asyncio.gather(
                workers(0, "finish", lambda: "complete", FEW, (5, FINISH, 2), epoch=5),
                workers(0, "update", lambda: "version 9", MANY, (9, APPLY), epoch=8),
                workers(1, "update", lambda: "another", MANY, (9, APPLY), epoch=8),
            )
        )

    with clock:
        assert clock.run(scenario()) == ["complete", "version 9", "another"]
    finish = TIMES.update((0, 5, FINISH, 2), bytes=FEW)
    update, beside = (TIMES.update((server, 9, APPLY), bytes=MANY) for server in (0, 1))
    spans = {(span.name, span.server): span for span in told}
    first, second, other = spans["finish", 0], spans["WU", 0], spans["WU", 1]
    assert first == Span("finish", "parameters", 0, 2, 5, 0.0, finish)
    assert (second.start, second.end) == (finish, pytest.approx(finish + update))
    assert (other.start, other.end) == (0.0, beside)
    assert (second.version, second.epoch, other.version) == (9, -1, 9)
    counted = recorder.parameters[0]
    assert counted.take(5) == ParameterCounts(busy_seconds=finish)
    assert counted.take(8) == ParameterCounts(updates=1, busy_seconds=pytest.approx(update))


def test_on_the_real_clock_work_takes_what_it_takes_and_its_error_is_the_caller_s() -> None:
    told: list[Span] = []
    recorder = Recorder({}, told.append)

    def fails() -> None:
        raise ArithmeticError("no such step")

    with RealClock() as clock:
        workers = ParameterWorkers(1, clock, None, recorder)
        assert clock.run(workers(0, "update", lambda: 7, MANY, (0, APPLY), epoch=0)) == 7
        with pytest.raises(ArithmeticError, match="no such step"):
            clock.run(workers(0, "update", fails, MANY, (1, APPLY), epoch=1))
    assert [span.version for span in told] == [0]
