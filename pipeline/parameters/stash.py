"""Stashed versions: an interval's backward uses the weights, and the model's state, of its forward (dorylus.md §4)."""

from __future__ import annotations

from typing import final

from dorylax.errors import RunError
from dorylax.pipeline.parameters.messages import Pulled


@final
class Stash:
    """The version of each interval that computes, one epoch at a time; arrays are shared, not copied.

    Args:
        first: the first epoch.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._kept: dict[int, tuple[int, Pulled]] = {}  # interval -> epoch, version
        self._next: dict[int, int] = {}

    def __len__(self) -> int:
        """How many are live; at most one per interval."""
        return len(self._kept)

    def pull(self, interval: int, epoch: int, newest: Pulled) -> Pulled:
        """The version of an interval in an epoch: `newest` at the first call, the same ever after.

        Raises:
            RunError: the epoch's gradient is complete, or that of an earlier epoch is not.
        """
        kept = self._kept.get(interval)
        if kept is not None and kept[0] == epoch:
            return kept[1]
        if epoch < self._next.get(interval, self._first):
            raise RunError(
                f"interval {interval} cannot pull weights for epoch {epoch}: its gradient of that epoch is complete"
            )
        if kept is not None:
            raise RunError(
                f"interval {interval} cannot pull weights for epoch {epoch} before all of its gradient of epoch {kept[0]} "
                "is pushed"
            )
        self._kept[interval] = (epoch, newest)
        return newest

    def release(self, interval: int, epoch: int) -> Pulled:
        """Gives the version up, when the interval's gradient is complete.

        Returns:
            It, for what remains to be computed with it.

        Raises:
            RunError: it has pulled none for this epoch.
        """
        kept = self._kept.get(interval)
        if kept is None or kept[0] != epoch:
            raise RunError(
                f"interval {interval} pushed a gradient of epoch {epoch} without having pulled weights for it"
            )
        del self._kept[interval]
        self._next[interval] = epoch + 1
        return kept[1]
