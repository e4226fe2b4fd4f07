"""A function through boto3: what is asked before a run, what is sent, how each reply is handled, and what no log shows."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from support.aws import SECRET, Cloud, ThrottledError, cloud
from support.leftovers import nothing_left
from support.rie import Reply

from dorylax.errors import RunError
from dorylax.net.errors import TaskFailedError
from dorylax.net.keys import RunKeys
from dorylax.serverless.backends.aws import clients, invoker
from dorylax.serverless.backends.aws.clients import lambda_client
from dorylax.serverless.backends.aws.invoker import LambdaFunctions
from dorylax.serverless.function.invocation import Invocation, response
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

KEYS = RunKeys.make()
SETTINGS = SandboxSettings(KEYS)


def echo(payload: bytes) -> Reply:
    """What a function answers that returns its event."""
    return Reply(json.dumps(response(Invocation.read(json.loads(payload)).event)).encode(), None)


@pytest.fixture(scope="module")
def aws() -> Iterator[Cloud]:
    with cloud() as found:
        found.make_function()
        yield found


@pytest.fixture(autouse=True)
def usual(aws: Cloud) -> None:
    aws.answer, aws.invoked, aws.unreserved = echo, 0, 1000


Make = Callable[..., LambdaFunctions]


@pytest.fixture
def make(aws: Cloud) -> Iterator[Make]:
    made: list[LambdaFunctions] = []

    def functions(
        function: str = aws.function, *, calls: int = 2, deadline: float | None = None, seconds: float = 60.0
    ) -> LambdaFunctions:
        client = lambda_client(None, calls=calls, seconds=seconds)
        made.append(LambdaFunctions(client, function, settings=SETTINGS, calls=calls, deadline=deadline))
        return made[-1]

    yield functions
    for one in made:
        one.close()


def invoke(functions: LambdaFunctions, *events: bytes) -> list[Any]:
    async def main() -> list[Any]:
        return await asyncio.gather(*(functions.invoke(event, 60.0) for event in events), return_exceptions=True)

    return asyncio.run(main())


def no_secret_in(text: str) -> None:
    for secret in (KEYS.worker_secret.decode(), KEYS.token.hex(), base64.b64encode(b"my event").decode(), SECRET):
        assert secret not in text


def test_events_come_with_their_settings_and_answers_come_back(aws: Cloud, make: Make) -> None:
    seen: list[Invocation] = []

    def answer(payload: bytes) -> Reply:
        seen.append(Invocation.read(json.loads(payload)))
        return echo(payload)

    aws.answer = answer
    assert invoke(make(), b"one", b"two", b"three") == [b"one", b"two", b"three"]
    assert {one.event for one in seen} == {b"one", b"two", b"three"}
    assert {one.settings.keys for one in seen} == {RunKeys.from_json(KEYS.to_json())}
    assert seen[0].settings.keys.server_secret is None


def test_an_alias_is_invoked(aws: Cloud, make: Make) -> None:
    client = boto3.client("lambda")
    version = client.publish_version(FunctionName=aws.function)["Version"]
    client.create_alias(FunctionName=aws.function, Name="live", FunctionVersion=version)
    client.close()
    assert invoke(make(f"{aws.function}:live"), b"event") == [b"event"]


def test_so_many_calls_at_a_time(aws: Cloud, make: Make) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def answer(payload: bytes) -> Reply:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return echo(payload)

    aws.answer = answer
    events = [b"%d" % k for k in range(12)]
    assert invoke(make(calls=3), *events) == events
    assert most == 3


def test_throttled_once_is_asked_for_once(aws: Cloud, make: Make) -> None:
    """boto3 would repeat it, and the controller would not know that there are too many."""

    def refuse(_: bytes) -> Reply:
        raise ThrottledError

    aws.answer = refuse
    (error,) = invoke(make(), b"my event")
    assert isinstance(error, TaskFailedError)
    assert error.reason == "throttled"
    assert str(error) == "AWS throttles (TooManyRequestsException: Rate Exceeded.)"
    assert aws.invoked == 1


def test_a_function_that_is_not_there_ends_the_run(make: Make) -> None:
    (error,) = invoke(make("nobody"), b"my event")
    assert isinstance(error, RunError)
    assert "dorylax aws deploy" in str(error)


def test_an_answer_that_does_not_come(aws: Cloud, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def answer(payload: bytes) -> Reply:
        gate.wait(60.0)
        return echo(payload)

    aws.answer = answer
    monkeypatch.setattr(clients, "_MARGIN_SECONDS", 0.1)
    (error,) = invoke(make(seconds=0.1), b"my event")
    gate.set()
    assert isinstance(error, TaskFailedError)
    assert (error.reason, str(error)) == ("timeout", "the function has not answered in time")
    assert aws.invoked == 1


def test_events_that_are_too_large_are_not_sent(aws: Cloud, make: Make) -> None:
    (error,) = invoke(make(), b"x" * (MAX_EVENT_BYTES + 1))
    assert isinstance(error, TaskFailedError)
    assert f"at most {MAX_EVENT_BYTES} bytes" in str(error)
    assert aws.invoked == 0
    assert invoke(make(), b"x" * MAX_EVENT_BYTES) == [b"x" * MAX_EVENT_BYTES]


# Before a run.


def test_warming_starts_as_many_sandboxes_as_there_are_calls(
    aws: Cloud, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    here = threading.Barrier(4)

    def answer(payload: bytes) -> Reply:
        here.wait(30.0)  # all of them, at once
        return echo(payload)

    aws.answer = answer
    with caplog.at_level(logging.INFO, "dorylax.aws"):
        asyncio.run(make(calls=4).warm())
    assert aws.invoked == 4
    assert [record.getMessage() for record in caplog.records if record.name == "dorylax.aws"] == [
        f"function {aws.function}: 1769 MB, 300 s, x86_64, 4 calls at a time"
    ]


def test_warming_lowers_the_calls_to_what_aws_lets_run(
    aws: Cloud, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    aws.unreserved = 3
    functions = make(calls=5)
    assert asyncio.run(functions.warm()) == 3
    assert (functions.calls, aws.invoked) == (3, 3)
    (text,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert text.startswith(f"AWS lets 3 calls of the function {aws.function} run at a time, not 5")


def test_reserved_concurrency_counts_and_the_account_s_does_not(aws: Cloud, make: Make) -> None:
    client = boto3.client("lambda")
    aws.unreserved = 0
    client.put_function_concurrency(FunctionName=aws.function, ReservedConcurrentExecutions=2)
    try:
        functions = make(calls=2)
        assert asyncio.run(functions.warm()) is None
        assert functions.calls == 2
    finally:
        client.delete_function_concurrency(FunctionName=aws.function)
        client.close()


@pytest.mark.parametrize(("throttles", "text"), [(True, "AWS throttles"), (False, "the function's sandbox failed")])
def test_some_warm_ups_may_fail(
    aws: Cloud, make: Make, caplog: pytest.LogCaptureFixture, throttles: bool, text: str
) -> None:
    """The calls of tasks may, too."""
    only = threading.Semaphore(1)

    def answer(payload: bytes) -> Reply:
        if only.acquire(blocking=False):
            return echo(payload)
        if throttles:
            raise ThrottledError
        return Reply(b'{"errorType": "Runtime.ExitError", "errorMessage": "x"}', "Unhandled")

    aws.answer = answer
    asyncio.run(make(calls=3).warm())
    assert f"1 of 3 sandboxes were started; of the others the last said: {text}" in caplog.text


def test_a_run_begins_where_there_is_no_room_yet(aws: Cloud, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Its calls wait for it, and end the run where there comes to be none."""

    def refuse(_: bytes) -> Reply:
        raise ThrottledError

    aws.answer = refuse
    asyncio.run(make(calls=3).warm())
    assert "0 of 3 sandboxes were started; of the others the last said: AWS throttles" in caplog.text


def test_none_started_is_an_error(aws: Cloud, make: Make) -> None:
    once = threading.Semaphore(1)

    def refuse(_: bytes) -> Reply:
        if once.acquire(blocking=False):
            return Reply(b'{"errorType": "Runtime.ExitError", "errorMessage": "x"}', "Unhandled")
        raise ThrottledError

    aws.answer = refuse
    message = f"^of 3 sandboxes of the function {aws.function} none could be started: "
    with pytest.raises(TaskFailedError, match=message) as caught:
        asyncio.run(make(calls=3).warm())
    assert caught.value.reason == "died"


def test_a_broken_image_is_found_before_the_run(aws: Cloud, make: Make) -> None:
    aws.answer = lambda _: Reply(b'{"errorType": "Runtime.ImportModuleError", "errorMessage": "jax"}', "Unhandled")
    with pytest.raises(RunError, match="its image is broken, dorylax aws deploy"):
        asyncio.run(make().warm())


def test_warming_says_that_there_is_no_function(make: Make) -> None:
    with pytest.raises(RunError, match="there is no such function"):
        asyncio.run(make("nobody").warm())


def test_surprises_are_warned_of(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(make(deadline=30.0).warm())
    assert "goes on, and costs" in caplog.text


class Changing:
    """A client whose function becomes ready with its third look."""

    def __init__(self, states: list[str]) -> None:
        self._states = states

    def get_function(self, **_: Any) -> dict[str, Any]:
        return {"Configuration": {"FunctionName": "dorylax", "State": self._states.pop(0)}}

    def get_account_settings(self) -> dict[str, Any]:
        return {"AccountLimit": {"UnreservedConcurrentExecutions": 9}}

    def invoke(self, **_: Any) -> dict[str, Any]:
        raise AssertionError("invoked too early")

    def close(self) -> None: ...


def test_warming_waits_until_the_function_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoker, "_LOOK_AGAIN_SECONDS", 0.001)
    client = Changing(["Pending", "Pending", "Active"])
    functions = LambdaFunctions(client, "dorylax", settings=SETTINGS, calls=1, deadline=None)
    functions._check()
    assert client._states == []
    client._states = ["Pending"] * 999
    monkeypatch.setattr(invoker, "_CHANGING_SECONDS", 0.01)
    with pytest.raises(RunError, match=r"has been changing for 0\.01 seconds"):
        functions._check()
    functions.close()


# Secrets.


def test_keys_and_events_are_in_no_log_and_no_error(aws: Cloud, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Not even where everything is logged."""
    caplog.set_level(logging.DEBUG)
    functions = make()
    asyncio.run(functions.warm())
    assert invoke(functions, b"my event") == [b"my event"]

    def refuse(_: bytes) -> Reply:
        raise ThrottledError

    aws.answer = refuse
    (error,) = invoke(functions, b"my event")
    assert error.__cause__ is None
    assert error.__suppress_context__
    no_secret_in(caplog.text + str(error) + repr(functions.__dict__))


# Ends.


def test_closing_leaves_nothing(aws: Cloud) -> None:
    with nothing_left():
        client = lambda_client(None, calls=3, seconds=60.0)
        functions = LambdaFunctions(client, aws.function, settings=SETTINGS, calls=3, deadline=None)
        assert invoke(functions, b"a", b"b", b"c") == [b"a", b"b", b"c"]
        functions.close()
        functions.close()
    (error,) = invoke(functions, b"d")
    assert isinstance(error, TaskFailedError)
    assert error.reason == "refused"
