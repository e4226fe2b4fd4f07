"""`LambdaFunctions`: the invoker for a deployed AWS Lambda function."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, final

from dorylax.errors import RunError
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.aws.checks import FunctionName, reserved_calls, shared_calls, state_of, warnings_of
from dorylax.serverless.backends.aws.replies import answer_of, problem_of
from dorylax.serverless.backends.callers import Callers
from dorylax.serverless.function.invocation import MAX_INVOCATION_BYTES, Invocation
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_log = logging.getLogger("dorylax.aws")

T = TypeVar("T")

_CHANGING_SECONDS = 300.0
"""Timeout for a function to become ready. AWS needs up to a few minutes for a large image or a VPC."""

_LOOK_AGAIN_SECONDS = 2.0
_GRACE_SECONDS = 2.0
"""Grace period for active calls when the invoker closes. Longer calls are abandoned."""


@final
class LambdaFunctions:
    """`Invoker` that calls a Lambda function from a pool of threads.

    Running calls cannot be stopped. A cancelled call runs until AWS ends it, is billed, and occupies its thread. A call
    that exceeds the client's read timeout frees its thread, but still runs and is billed.

    Args:
        client: Lambda client of boto3 (`clients.lambda_client`), configured with the read timeout. It is closed with the
            invoker.
        function: Name, name:alias, or ARN of the function.
        settings: Settings of the sandboxes, including the run's keys. Each invocation carries them.
        calls: Maximum number of concurrent calls, ≥ 1.
        deadline: Time limit per call in seconds, or None for the function's own limit. A different limit of the function
            causes a warning.

    Raises:
        ConfigError: If `function` is not a valid name or ARN.
    """

    def __init__(
        self, client: Any, function: str, *, settings: SandboxSettings, calls: int, deadline: float | None
    ) -> None:
        self._client, self._settings, self._deadline = client, settings, deadline
        self._function = FunctionName.of(function)
        self._callers = callers = Callers(calls, "the functions")

        def close() -> None:
            callers.close(_GRACE_SECONDS)
            client.close()

        # Also runs if the caller does not close the invoker.
        self._close = weakref.finalize(self, close)

    @property
    def calls(self) -> int:
        """Maximum number of concurrent calls. `warm` may lower it."""
        return self._callers.most

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """Invoke the function with an event; see `Invoker`. Events queue in FIFO order while all threads are busy.

        Args:
            event: Encoded `wire.Event`.
            timeout: Ignored, because boto3 sets the timeout per client, not per call.

        Raises:
            TaskFailedError: If the call fails but a retry may succeed.
            RunError: If a retry would fail too.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise TaskFailedError(f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}", "refused")
        del timeout
        answer = await self._do(lambda: self._call(event))
        if answer is None:
            raise TaskFailedError("the function was given an event, and answered as if there were none", "died")
        return answer

    async def warm(self) -> int | None:
        """Check the function's state and limits, and start one sandbox per concurrent call.

        Returns:
            Maximum number of concurrent calls that AWS allows, or None if it allows the requested number.

        Raises:
            RunError: If the function is missing or unusable, or the credentials may not read or invoke it.
            TaskFailedError: If no sandbox starts for a reason other than throttling.
        """
        asked = self.calls
        await self._do(self._check)
        room = self.calls if self.calls < asked else None
        found = await asyncio.gather(
            *(self._do(lambda: self._call(None)) for _ in range(self.calls)), return_exceptions=True
        )
        failed = [one for one in found if isinstance(one, TaskFailedError)]
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, TaskFailedError):
                raise one
        if not failed:
            return room
        started, last = len(found) - len(failed), failed[-1]
        if started or all(one.reason == "throttled" for one in failed):
            # Calls of tasks are retried, so one broken connection in a thousand must not end the run.
            _log.warning("%d of %d sandboxes were started; of the others the last said: %s", started, len(found), last)
            return room
        # Report a cause other than throttling, which waiting would not resolve.
        last = next(one for one in failed if one.reason != "throttled")
        name = self._function.name
        raise TaskFailedError(
            f"of {len(found)} sandboxes of the function {name} none could be started: {last}", last.reason
        )

    def close(self) -> None:
        """Refuse queued events. AWS ends the sandboxes. Idempotent."""
        self._close()

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._callers.submit(work))

    # The following methods run on the pool's threads.

    def _call(self, event: bytes | None) -> bytes | None:
        payload = Invocation(self._settings, event).encode()
        if len(payload) > MAX_INVOCATION_BYTES:
            raise RunError(f"an invocation must have at most {MAX_INVOCATION_BYTES} bytes, got {len(payload)}")
        response = self._ask("invoke", **self._function.parameters(), Payload=payload)
        try:
            content: bytes = response["Payload"].read()
        except Exception as error:
            raise problem_of(error) from None
        return answer_of(content, response.get("FunctionError"))

    def _check(self) -> None:
        function = self._ready()
        configuration = function["Configuration"]
        for warning in warnings_of(configuration, self._deadline):
            _log.warning("%s", warning)
        reserved = reserved_calls(function)
        most = shared_calls(self._ask("get_account_settings")) if reserved is None else reserved
        if most < self.calls:
            _log.warning(
                "AWS lets %d calls of the function %s run at a time, not %d: graph servers begin no more than that "
                "together; reserve more for it, or ask AWS for more",
                most,
                self._function.name,
                self.calls,
            )
            self._callers.lower(most)
        _log.info(
            "function %s: %s MB, %s s, %s, %d calls at a time",
            self._function.name,
            configuration.get("MemorySize"),
            configuration.get("Timeout"),
            ", ".join(configuration.get("Architectures", ())),
            self.calls,
        )

    def _ready(self) -> dict[str, Any]:
        """Wait until the function can be invoked, and return the response of GetFunction."""
        end = time.monotonic() + _CHANGING_SECONDS
        while True:
            function = self._ask("get_function", **self._function.parameters())
            if state_of(function["Configuration"]) == "ready":
                return function
            if time.monotonic() > end:
                raise RunError(
                    f"the function {self._function.name} has been changing for {_CHANGING_SECONDS:g} seconds: "
                    "dorylax aws status shows why"
                )
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(**parameters)
        except Exception as error:
            # Drop the cause: its text, or a debugger's view of it, may quote the request.
            raise problem_of(error) from None
        return answer
