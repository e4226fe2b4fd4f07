"""The contract of backends."""

from __future__ import annotations

from typing import Protocol

from dorylax.serverless.task import TensorResult, TensorTask


class Backend(Protocol):
    """Runs tensor tasks. A task is stateless: whoever asks may ask again, and the answers are the same."""

    async def run(self, task: TensorTask) -> TensorResult:
        """Runs one task.

        Raises:
            TaskFailedError: the worker failed; the task may be asked for again.
            Exception: whatever the stage itself raises, which no repetition would change.
        """
        ...
