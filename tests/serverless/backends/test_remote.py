"""A backend through a handler: anything wrong with an answer or with results fails the attempt, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.backends import SMALL, bits, remote, task, with_operand
from support.http_store import Store

from dorylax.errors import RunError
from dorylax.net.client import DataClient
from dorylax.net.errors import FailureReason, TaskFailedError
from dorylax.net.keys import RunKeys
from dorylax.net.server import DataServer, Endpoint
from dorylax.serverless.backends.remote import _Exchange
from dorylax.serverless.handler.handle import handle
from dorylax.serverless.handler.sandbox import Sandbox
from dorylax.serverless.task import TensorResult, TensorTask
from dorylax.serverless.wire.event import VERSION
from dorylax.terminal.failures import explain

Arrays = Sequence[np.ndarray]


class Here:
    """Calls the handler on a thread of this process; what it puts and answers may be changed on its way, the first time."""

    def __init__(
        self,
        keys: RunKeys,
        *,
        event: Callable[[bytes], bytes] = bytes,
        put: Callable[[Arrays], Arrays] = list,
        answer: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._client = DataClient(keys)
        self._event, self._put, self._answer = event, put, answer
        self._sandbox = Sandbox(self)
        self._calls = 0

    def get(self, address: str, name: str) -> tuple[np.ndarray, ...]:
        return self._client.get(address, name)

    def put(self, address: str, name: str, arrays: Arrays) -> None:
        changed = self._put(arrays) if self._calls == 1 else arrays
        if changed:
            self._client.put(address, name, changed)

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        self._calls += 1
        if self._calls > 1:
            return await asyncio.to_thread(handle, event, self._sandbox)
        return self._answer(await asyncio.to_thread(handle, self._event(event), self._sandbox))

    async def warm(self) -> None:
        pass

    def close(self) -> None:
        self._sandbox.close()
        self._client.close()


def no_answer(answer: bytes) -> bytes:
    return answer[:-1]


def to_another_task(answer: bytes) -> bytes:
    return answer.replace(b'"attempt": 0', b'"attempt": 5').replace(b'"attempt":0', b'"attempt":5')


def of_another_version(event: bytes) -> bytes:
    return event.replace(b'"version":%d' % VERSION, b'"version":99')


def nothing(arrays: Arrays) -> Arrays:
    return []


def without_the_first(arrays: Arrays) -> Arrays:
    return arrays[1:] if len(arrays) > 1 else arrays


def one_row_less(arrays: Arrays) -> Arrays:
    return [array[:-1] if array.shape[:1] == (5,) else array for array in arrays]


def run_here(asked: TensorTask, **changed: Any) -> TensorResult:
    keys = RunKeys.make()
    with remote(keys, Here(keys, **changed)) as opened:
        (found,) = opened.run(asked)
    assert isinstance(found, TensorResult), found
    return found


@pytest.mark.parametrize("answer", [no_answer, to_another_task])
def test_results_that_have_come_count_whatever_the_answer(answer: Callable[[bytes], bytes]) -> None:
    asked = task(SMALL, 5)
    assert bits(run_here(asked, answer=answer).values, asked) == bits(run_here(asked).values, asked)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"put": nothing, "answer": no_answer}, "answer"),
        ({"put": nothing, "answer": to_another_task}, "the answer is to .*, attempt 5"),
        ({"event": of_another_version}, "was refused by its sandbox: the event is refused: .*99"),
        ({"put": without_the_first}, "arrays of rows have come, it has"),
        ({"put": one_row_less}, "4 rows have come in a result of 5"),
    ],
)
def test_what_is_wrong_fails_the_attempt_and_the_next_one_is_right(changed: dict[str, Any], message: str) -> None:
    asked = task(SMALL, 5)
    wanted = run_here(asked)
    keys = RunKeys.make()
    with remote(keys, Here(keys, **changed)) as opened:
        (failed,) = opened.run(asked)
        assert isinstance(failed, TaskFailedError)
        with pytest.raises(TaskFailedError, match=message):
            raise failed
        (found,) = opened.run(asked, attempts=[1])
    assert isinstance(found, TensorResult)
    assert bits(found.values, asked) == bits(wanted.values, asked)


@pytest.mark.parametrize(("deaths", "reason", "starts"), [(1, "died", True), (2, "died", False), (1, "refused", False)])
def test_a_sandbox_that_dies_while_it_starts_is_started_once_more(
    deaths: int, reason: FailureReason, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [TaskFailedError("its node", reason)] * deaths

    async def warm(_: Here) -> None:
        if left:
            raise left.pop()

    monkeypatch.setattr(Here, "warm", warm)
    keys = RunKeys.make()
    with remote(keys, Here(keys)) as opened:
        if starts:
            asyncio.run(opened.backend.warm())
        else:
            with pytest.raises(TaskFailedError, match="its node"):
                asyncio.run(opened.backend.warm())
    assert not left


def test_a_stage_that_cannot_be_computed_there_is_told_to_the_user() -> None:
    asked = task(SMALL, 5)
    keys = RunKeys.make()
    with remote(keys, Here(keys)) as opened:
        (failed,) = opened.run(with_operand(asked, 0, np.ones((5, 7), np.float32)))
    assert isinstance(failed, RunError)
    explained = explain(failed)
    assert explained.line.startswith("tensor task of stage")


def test_an_error_of_several_lines_becomes_one() -> None:
    def of_two_lines(answer: bytes) -> bytes:
        return answer.replace(b'"error":null', b'"error":"one\\n  two"')

    keys = RunKeys.make()
    with remote(keys, Here(keys, put=nothing, answer=of_two_lines)) as opened:
        (failed,) = opened.run(task(SMALL, 5))
    assert str(failed).endswith("failed in its sandbox: one two")


def test_results_that_come_when_the_run_has_ended_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    delivers: list[Callable[[Any], None]] = []
    monkeypatch.setattr(Endpoint, "expect", lambda endpoint, name, deliver: delivers.append(deliver))
    loop = asyncio.new_event_loop()
    with DataServer(RunKeys.make()) as data:
        graph = data.open("graph")
        exchange = _Exchange(graph, graph, 8, (8,), loop)
        exchange.expect("rows", graph, "result")
    loop.close()
    (deliver,) = delivers
    deliver((np.zeros(3),))
    assert not exchange.complete


def test_weights_stay_until_the_last_task_that_needs_them() -> None:
    class OneAfterTheOther(Here):
        """Has the second task computed, in a new sandbox, when the first has ended."""

        async def invoke(self, event: bytes, timeout: float) -> bytes:
            self._calls += 1
            if self._calls == 1:
                return await asyncio.to_thread(handle, event, self._sandbox)
            await first
            sandbox = Sandbox(self)
            try:
                return await asyncio.to_thread(handle, event, sandbox)
            finally:
                sandbox.close()

    keys, asked = RunKeys.make(), [task(SMALL, 5), task(SMALL, 5, interval=2)]
    with remote(keys, OneAfterTheOther(keys)) as opened:

        async def both() -> list[TensorResult]:
            nonlocal first
            first = asyncio.ensure_future(opened.backend.run(asked[0], 0))
            return list(await asyncio.gather(first, opened.backend.run(asked[1], 0)))

        first: asyncio.Future[TensorResult]
        found = opened.clock.run(both())
    assert bits(found[0].values, asked[0]) == bits(found[1].values, asked[1])


@pytest.mark.parametrize("reason", ["died", "timeout", "refused", "throttled"])
def test_throttled_is_told_apart(reason: FailureReason) -> None:
    class Refusing(Here):
        async def invoke(self, event: bytes, timeout: float) -> bytes:
            raise TaskFailedError("too many", reason)

    keys = RunKeys.make()
    with remote(keys, Refusing(keys)) as opened:
        (failed,) = opened.run(task(SMALL, 5))
    assert isinstance(failed, TaskFailedError)
    assert (failed.reason == "throttled") is (reason == "throttled")
    assert str(failed).endswith("too many")


def test_stages_may_be_fetched_elsewhere() -> None:
    with Store() as store:

        def publish(artefacts: dict[str, bytes]) -> Callable[[str], str]:
            store.content = {f"/stages/{sha256}": content for sha256, content in artefacts.items()}
            return lambda sha256: f"{store.url}/stages/{sha256}?signature=1"

        asked, keys = task(SMALL, 5), RunKeys.make()
        with remote(keys, Here(keys), publish=publish) as opened:
            (first,) = opened.run(asked)
            store.content.clear()  # a sandbox keeps what it has
            (second,) = opened.run(task(SMALL, 3, interval=2))
        assert isinstance(second, TensorResult), second
        assert len(store.asked) == 1
        assert bits(first.values, asked) == bits(run_here(asked).values, asked)


def test_a_stage_that_is_not_there_fails_the_attempt() -> None:
    with Store() as store:
        keys = RunKeys.make()
        with remote(keys, Here(keys), publish=lambda _: lambda sha256: f"{store.url}/{sha256}?signature=1") as opened:
            (failed,) = opened.run(task(SMALL, 5))
    assert isinstance(failed, TaskFailedError)
    assert "cannot be had: 404" in str(failed)
    assert "signature" not in str(failed)
