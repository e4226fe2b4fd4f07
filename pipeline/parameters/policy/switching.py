"""One policy before an epoch, another from it on: for runs that go from async to pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dorylax.pipeline.parameters.messages import Complete
from dorylax.pipeline.parameters.policy.base import DueStep, Late, UpdatePolicy


@final
class Switching:
    """Gives each gradient to the policy of its epoch.

    Args:
        before: for epochs before `epoch`.
        after: for the others.
        epoch: where it switches; nobody may compute it before all have finished those before it.
    """

    def __init__(self, before: UpdatePolicy, after: UpdatePolicy, epoch: int) -> None:
        self._before, self._after, self._epoch = before, after, epoch

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return self._before.waiting + self._after.waiting

    def add(self, interval: int, epoch: int, complete: Complete) -> Sequence[DueStep | Late]:
        """See `UpdatePolicy`."""
        policy = self._before if epoch < self._epoch else self._after
        return policy.add(interval, epoch, complete)

    def forget(self) -> None:
        """See `UpdatePolicy`."""
        self._before.forget()
        self._after.forget()
