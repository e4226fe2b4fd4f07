"""What every backend must do, on the same stages as workers get them; a new backend is one more entry of `BACKENDS`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from support.backends import (
    BACKENDS,
    SERVERS,
    SIZE,
    SMALL,
    STAGES,
    Opened,
    bits,
    connect,
    expected,
    real,
    stages,
    task,
    with_operand,
)
from support.handler_events import SCALE
from support.leftovers import nothing_left

from dorylax.net.errors import TaskFailedError
from dorylax.program.tasks.stage_calls import padded_operands
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask


@pytest.fixture(scope="module", params=BACKENDS)
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """One backend for all tests of it: each starts processes."""
    with connect(request.param, request), BACKENDS[request.param]() as found:
        yield found


def check(found: TensorResult, asked: TensorTask) -> None:
    assert isinstance(found, TensorResult), found
    for got, wanted in zip(real(found.values, asked), expected(asked), strict=True):
        assert type(got) is np.ndarray
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_the_stages_are_those_that_the_tests_name() -> None:
    """They read and write all kinds of values, more than one of each."""
    assert tuple(stages()) == STAGES
    assert {source.source for case in stages().values() for source in case.sources} == {"rows", "weights", "free"}
    assert {target.target for case in stages().values() for target in case.targets} == {"rows", "sums", "free"}


def test_keeps_the_contract_s_names(opened: Opened) -> None:
    assert isinstance(opened.backend, Backend)


@pytest.mark.parametrize("number", STAGES)
def test_padding_changes_nothing(opened: Opened, number: int) -> None:
    """One row, with streaming a little more than a half of them, all."""
    tasks = [task(number, count, interval) for interval, count in enumerate((1, 5, SIZE))]
    for found, asked in zip(opened.run(*tasks), tasks, strict=True):
        check(found, asked)


@pytest.mark.parametrize("number", STAGES)
def test_operands_may_be_padded_already(opened: Opened, number: int) -> None:
    bare = task(number, 5)
    padded = dataclasses.replace(
        bare, operands=tuple(padded_operands(bare.sources, bare.operands, bare.count, bare.size))
    )
    (found,) = opened.run(padded)
    check(found, bare)


def test_without_rows_sums_are_zero_and_the_rest_is_there(opened: Opened) -> None:
    asked = task(SMALL, 0)
    (found,) = opened.run(asked)
    assert isinstance(found, TensorResult), found
    sums, y, free, inverse = real(found.values, asked)
    np.testing.assert_array_equal(sums, np.zeros((4, 3), np.float32))
    assert (y.shape, inverse.shape) == ((0, 3), (0, 4))
    assert free == 2 * SCALE


def test_before_training_there_is_neither_an_epoch_nor_a_version(opened: Opened) -> None:
    (number,) = [one for one in STAGES if all(source.source != "weights" for source in stages()[one].sources)][:1]
    asked = task(number, 5, key=TaskKey(-1, 0, number, 0), version=-1, weights=())
    (found,) = opened.run(asked)
    check(found, asked)


@pytest.mark.parametrize("number", STAGES)
def test_repetitions_give_equal_bits(opened: Opened, number: int) -> None:
    """One after the other, and both at the same time."""
    asked = task(number, 5)
    results = [*opened.run(asked), *opened.run(asked, attempts=[1]), *opened.run(asked, asked, attempts=[2, 3])]
    for found in results:
        check(found, asked)
        assert bits(found.values, asked) == bits(results[0].values, asked)


def test_two_servers_at_the_same_time(opened: Opened) -> None:
    """Each task has rows of its own; versions of the weights differ between epochs."""
    tasks = []
    for interval in range(4 * SERVERS):
        one = task(SMALL, 1 + interval % SIZE, interval, key=TaskKey(3 + interval % 2, interval, SMALL, 0))
        w = one.operands[1] + np.float32(interval % 2)
        tasks.append(dataclasses.replace(with_operand(one, 1, w), weights=(w, w), version=7 + interval % 2))
    for found, asked in zip(opened.run(*tasks), tasks, strict=True):
        check(found, asked)


def test_predicted_weights_are_not_those_of_their_version(opened: Opened) -> None:
    """Intervals of one version that run further ahead have other weights, at the same time."""
    tasks = []
    for interval in range(4 * SERVERS):
        one = task(SMALL, 3, interval, key=TaskKey(40, interval, SMALL, 0))
        w = one.operands[1] * np.float32(1 + interval % 3)
        tasks.append(dataclasses.replace(with_operand(one, 1, w), weights=(w, w), version=40, ahead=interval % 3))
    for found, asked in zip(opened.run(*tasks), tasks, strict=True):
        check(found, asked)


def test_new_weights_are_new_whatever_was_kept(opened: Opened) -> None:
    for version in range(20, 30):
        one = task(SMALL, 3, key=TaskKey(version, 0, SMALL, 0))
        w = one.operands[1] * np.float32(version)
        asked = dataclasses.replace(with_operand(one, 1, w), weights=(w, w), version=version)
        check(*opened.run(asked), asked)


def test_an_error_of_the_stage_is_not_to_be_repeated(opened: Opened) -> None:
    """Rows of a width that the stage does not take."""
    broken = with_operand(task(SMALL, 5), 0, np.ones((5, 7), np.float32))
    (error,) = opened.run(broken)
    assert isinstance(error, Exception)
    assert not isinstance(error, TaskFailedError)
    assert "must be float32" in str(error)
    fine = task(SMALL, 5)
    check(*opened.run(fine), fine)  # and the worker lives


def test_results_stay_when_operands_are_written_to_afterwards(opened: Opened) -> None:
    """A graph server's buffers are written to in the next epoch."""
    asked = task(SMALL, 5)
    wanted = expected(asked)
    (found,) = opened.run(asked)
    for place in (0, 3):
        asked.operands[place][...] = np.nan
    for got, value in zip(real(found.values, asked), wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5)


def test_time_is_the_clock_s(opened: Opened) -> None:
    before = opened.clock.now()
    (found,) = opened.run(task(SMALL, 5))
    assert before <= found.start <= found.end <= opened.clock.now()


def test_a_task_that_was_given_up_may_be_asked_for_again(opened: Opened) -> None:
    asked = task(SMALL, 5)

    async def give_up() -> None:
        call = asyncio.ensure_future(opened.backend.run(asked, 0))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    opened.clock.run(give_up())
    check(*opened.run(asked, attempts=[1]), asked)


@pytest.mark.parametrize("name", BACKENDS)
def test_closing_leaves_nothing_and_may_be_repeated(name: str, request: pytest.FixtureRequest) -> None:
    """While tasks run, too: nobody waits for them any more."""
    stages()  # what JAX starts to make them is not the backend's
    asked = task(SMALL, 5)
    with connect(name, request), nothing_left():
        with BACKENDS[name]() as opened:
            check(*opened.run(asked), asked)
            for interval in range(4):
                opened.clock.spawn(opened.backend.run(task(SMALL, 5, interval), 1))
            opened.clock.run(asyncio.sleep(0))
            opened.clock.close()
            opened.backend.close()
        opened.backend.close()
