"""`LambdaFunctions`: a deployed function of AWS Lambda, whose sandboxes take events."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, final

from dorylax.errors import RunError
from dorylax.serverless.backends.aws.checks import FunctionName, reserved_calls, shared_calls, state_of, warnings_of
from dorylax.serverless.backends.aws.replies import answer_of, problem_of
from dorylax.serverless.backends.base import InvokeError
from dorylax.serverless.backends.callers import Callers
from dorylax.serverless.function.invocation import MAX_INVOCATION_BYTES, Invocation
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.wire.event import MAX_EVENT_BYTES

_log = logging.getLogger("dorylax.aws")

T = TypeVar("T")

_CHANGING_SECONDS = 300.0
"""For a function to become ready: AWS takes up to a few minutes for a large image or a VPC."""

_LOOK_AGAIN_SECONDS = 2.0
_GRACE_SECONDS = 2.0
"""For calls that run when it is closed: short ones end, the others are abandoned."""


@final
class LambdaFunctions:
    """Invokes a function, and waits for its answers on threads; an `Invoker`.

    A call cannot be stopped. One that is cancelled runs until AWS ends it, costs, and keeps its thread meanwhile. One that
    takes longer than the client waits is given up: its thread is free, but it still runs and costs.

    Args:
        client: boto3's of Lambda (`clients.lambda_client`), which knows how long a call may take; it is closed with this.
        function: a name, name:alias, or an ARN.
        settings: of the sandboxes. They hold the run's keys, and travel with each event.
        calls: at a time, ≥ 1.
        deadline: seconds that a call should take at most, for a warning if the function has another limit; None: as long as
            the function allows.

    Raises:
        ConfigError: `function` names none.
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

        # Also if nobody closes it.
        self._close = weakref.finalize(self, close)

    @property
    def calls(self) -> int:
        """How many may run at a time; `warm` may have lowered it."""
        return self._callers.most

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """See `Invoker`. While all threads are busy, the event waits, first come first served.

        Args:
            event: `wire.Event`, encoded.
            timeout: not used: boto3 sets it for the client, not for a call.

        Raises:
            InvokeError: there will be no answer.
            RunError: a repetition would fail too.
        """
        if len(event) > MAX_EVENT_BYTES:
            raise InvokeError("refused", f"an event must have at most {MAX_EVENT_BYTES} bytes, got {len(event)}")
        del timeout
        answer = await self._do(lambda: self._call(event))
        if answer is None:
            raise InvokeError("died", "the function was given an event, and answered as if there were none")
        return answer

    async def warm(self) -> int | None:
        """Checks that the function is ready and large enough, and starts a sandbox for each call at a time.

        Returns:
            How many calls AWS lets run at a time, if fewer than were asked for.

        Raises:
            RunError: it does not exist or cannot be used, or this machine's credentials may not read or invoke it.
            InvokeError: no sandbox could be started, for another reason than throttling.
        """
        asked = self.calls
        await self._do(self._check)
        room = self.calls if self.calls < asked else None
        found = await asyncio.gather(
            *(self._do(lambda: self._call(None)) for _ in range(self.calls)), return_exceptions=True
        )
        failed = [one for one in found if isinstance(one, InvokeError)]
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, InvokeError):
                raise one
        if not failed:
            return room
        started, last = len(found) - len(failed), failed[-1]
        if started or all(one.reason == "throttled" for one in failed):
            # Tasks' calls wait for room and are repeated; one broken connection of a thousand must not end a run.
            _log.warning("%d of %d sandboxes were started; of the others the last said: %s", started, len(found), last)
            return room
        # The cause that waiting would not remove, rather than throttling.
        last = next(one for one in failed if one.reason != "throttled")
        name = self._function.name
        raise InvokeError(
            last.reason, f"of {len(found)} sandboxes of the function {name} none could be started: {last}"
        )

    def close(self) -> None:
        """Refuses events that wait; sandboxes end by themselves. A second call does nothing."""
        self._close()

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._callers.submit(work))

    # On threads.

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
        """What AWS says of the function, as soon as it can be invoked."""
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
            # Without the cause: its text, or a debugger's view of it, may quote the request.
            raise problem_of(error) from None
        return answer
