"""The contracts of backends, which run tasks, and of invokers, which call the handler elsewhere."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dorylax.serverless.task import TensorResult, TensorTask


@runtime_checkable
class Backend(Protocol):
    """Runs tensor tasks. Tasks are stateless: a repeat gives the same result."""

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        """Run one task.

        Args:
            task: The task.
            attempt: Number of the attempt, from 0.

        Raises:
            TaskFailedError: The worker failed. The caller may retry; later and with fewer concurrent calls if "throttled".
            RunError: The stage failed; a retry would fail, too. Stages in this process raise their own exceptions.
        """
        ...

    async def warm(self) -> int | None:
        """Start workers before the first task.

        Returns:
            Limit of concurrent tasks of all graph servers, if it is below the configured one; further tasks would only
            queue. None: the configured limit holds.

        Raises:
            TaskFailedError: A worker could not be started.
        """
        ...

    def close(self) -> None:
        """Stop workers, and close sockets and files. A second call does nothing."""
        ...


@runtime_checkable
class Invoker(Protocol):
    """Calls the handler (`dorylax.serverless.handler`) in a container, a process or a cloud function."""

    async def invoke(self, event: bytes, timeout: float) -> bytes:
        """Process an event in a sandbox.

        Args:
            event: Encoded `wire.Event`.
            timeout: Time limit in seconds after a sandbox accepts the event; the sandbox is then killed. Invokers that
                cannot kill sandboxes receive their time limit in the constructor.

        Returns:
            Encoded `wire.Answer`.

        Raises:
            TaskFailedError: The call failed. The caller may retry.
            Exception: The call failed for good; the text is for the user.
        """
        ...

    async def warm(self) -> int | None:
        """Start sandboxes before the first event.

        Returns:
            See `Backend.warm`.

        Raises:
            TaskFailedError: A sandbox could not be started.
            Exception: See `invoke`.
        """
        ...

    def close(self) -> None:
        """Stop all sandboxes. A second call does nothing."""
        ...
