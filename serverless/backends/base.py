"""The contracts of backends: what runs tasks, and what runs the handler somewhere else."""

from __future__ import annotations

from typing import Literal, Protocol, final, runtime_checkable

from dorylax.errors import DorylaxError
from dorylax.serverless.task import TensorResult, TensorTask

InvokeReason = Literal["died", "timeout", "refused", "throttled"]


@runtime_checkable
class Backend(Protocol):
    """Runs tensor tasks. A task is stateless: it may be asked for again, and its answers are the same."""

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        """Runs one task.

        Args:
            task: what to run.
            attempt: which repetition of the task it is, from 0.

        Raises:
            TaskFailedError: the worker failed; the task may be asked for again.
            TaskThrottledError: a `TaskFailedError`, before the task began; later, with fewer at a time, it may succeed.
            StageFailedError, or whatever a stage raises in this process: a repetition would fail too.
        """
        ...

    async def warm(self) -> int | None:
        """Starts workers, so that the first tasks find them ready.

        Returns:
            How many tasks of all graph servers can run at a time, if others decide that and allow fewer than were asked for:
            more would only wait, and look slow. None: as many as were asked for.

        Raises:
            InvokeError: one could not be started.
        """
        ...

    def close(self) -> None:
        """Ends workers, sockets and files; a second call does nothing."""
        ...


@runtime_checkable
class Invoker(Protocol):
    """Calls the handler (`dorylax.serverless.handler`) in a container, a process or a function of a cloud."""

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """Hands an event to a sandbox.

        Args:
            event: `wire.Event`, encoded.
            timeout: seconds from when a sandbox has taken it; one that takes longer is ended. An invoker that cannot end
                sandboxes is told once, when it is made, how long to wait for calls.

        Returns:
            `wire.Answer`, encoded.

        Raises:
            InvokeError: there will be no answer.
            Exception: a repetition would fail too; the text is for the user.
        """
        ...

    async def warm(self) -> int | None:
        """Starts sandboxes, so that the first events find them ready.

        Returns:
            As `Backend.warm`.

        Raises:
            InvokeError: they could not be started.
            Exception: as for `invoke`.
        """
        ...

    def close(self) -> None:
        """Ends all sandboxes; a second call does nothing."""
        ...


@final
class InvokeError(DorylaxError, RuntimeError):
    """A call of the handler that will not be answered.

    Attributes:
        reason: the sandbox "died", the call took too long ("timeout"), or was "refused" before it began; "throttled":
            refused because there are too many at a time, or none is possible just now.
    """

    def __init__(self, reason: InvokeReason, text: str) -> None:
        self.reason = reason
        super().__init__(text)
