"""Numbers complete gradients: the order in which all parameter servers apply updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import final

from dorylax.pipeline.parameters.policies import LateGradients, PerEpoch, PerInterval, Switching, UpdatePolicy
from dorylax.pipeline.parameters.records import Applied, Step

Numbered = tuple[Step, tuple[Step, ...]]
"""A numbered step, and the steps to send to the other servers now: this one last, or none."""


@final
class Sequencer:
    """Turns complete gradients, in any order and repeated or not, into numbered updates, each once.

    Args:
        num_intervals: K.
        update: "per_epoch" or "per_interval".
        interval_step_scaling: Under "per_interval", whether a step moves 1/K as far as a step with the whole gradient.
        sync_every: Under "per_interval", the number of updates sent to the other servers together. The last update of an
            epoch sends the rest. Under "per_epoch" each update is sent immediately.
        gradient_share: Under "per_epoch", the share of an epoch's gradients that its step waits for; see `LateGradients`.
        first: The first epoch.
        version: The number of updates applied before.
        due: Per interval, the epoch of the first gradient that `version` lacks; None is `first` for all. A resumed run
            computes earlier gradients again, from `first` on, for their rows only; the sequencer drops them.

    Raises:
        ValueError: `update` is unknown, or `sync_every` is below 1.
    """

    def __init__(
        self,
        num_intervals: int,
        update: str,
        *,
        interval_step_scaling: bool = True,
        sync_every: int = 1,
        gradient_share: float = 1.0,
        first: int = 0,
        version: int = 0,
        due: Sequence[int] | None = None,
    ) -> None:
        if sync_every < 1:
            raise ValueError(f"sync_every must be ≥ 1, got {sync_every}")
        self._contained = [first] * num_intervals if due is None else list(due)
        made = Counter(epoch for one in self._contained for epoch in range(min(self._contained), one))
        self._policy: UpdatePolicy
        match update:
            case "per_epoch" if gradient_share < 1:
                self._policy = LateGradients(num_intervals, gradient_share)
            case "per_epoch":
                self._policy = PerEpoch(num_intervals)
            case "per_interval":
                self._policy = PerInterval(num_intervals, scaling=interval_step_scaling, made=made)
            case _:
                raise ValueError(f"update must be 'per_epoch' or 'per_interval', got {update!r}")
        self._switched = isinstance(self._policy, PerEpoch)
        self._num_intervals, self._sync_every = num_intervals, sync_every
        self._due = [first] * num_intervals  # the epoch of each interval's next gradient
        self._early: dict[tuple[int, int], Step] = {}
        self._version = version
        self._unsent: list[Step] = []
        self._unconfirmed: dict[int, Applied] = {}
        self._done: set[int] = set()
        self._confirmed = version

    @property
    def pending(self) -> int:
        """The number of gradients and updates that not all servers have applied."""
        return len(self._early) + self._policy.waiting + len(self._unsent) + len(self._unconfirmed)

    def switch(self, epoch: int) -> None:
        """Make one step per epoch, with all its gradients, from this epoch on.

        Raises:
            ValueError: A gradient of that epoch, or of a later one, has already arrived.
        """
        if self._switched:
            return
        newest = max([due - 1 for due in self._due] + [early for _, early in self._early])
        if newest >= epoch:
            raise ValueError(
                f"updates cannot become per_epoch from epoch {epoch} on: gradients of epoch {newest} have come"
            )
        self._policy = Switching(self._policy, PerEpoch(self._num_intervals), epoch)
        self._switched = True

    def forget(self) -> None:
        """Drop everything that a checkpoint does not save. `pending` must be 0."""
        self._policy.forget()

    def add(self, gradient: Step) -> list[Numbered | Applied]:
        """Add an interval's gradient. Repeats are ignored.

        Returns:
            The new steps, in order. For a gradient too late for a step that was already reported, an `Applied`.
        """
        ((interval, epoch),) = gradient.pairs
        if epoch < self._due[interval]:
            return []
        self._early.setdefault((interval, epoch), gradient)
        found: list[Numbered | Applied] = []
        # Messages may overtake each other, but the epochs of an interval are taken in order.
        while (pair := (interval, self._due[interval])) in self._early:
            gradient = self._early.pop(pair)
            self._due[interval] += 1
            steps: Sequence[Step | Applied] = [Applied(0, gradient.pairs, gradient.losses)]
            if pair[1] >= self._contained[interval]:
                steps = self._policy.add(gradient)
            for step in steps:
                if isinstance(step, Step):
                    found.append(self._number(step))
                elif (told := self._late(step)) is not None:
                    found.append(told)
        return found

    def confirm(self, number: int) -> list[Applied]:
        """Mark an update as applied: by server 0, or by all servers if it closes its epoch.

        Returns:
            The updates to report now, in the order of numbers, each once.
        """
        self._done.add(number)
        told = []
        while self._confirmed + 1 in self._done:
            self._confirmed += 1
            self._done.remove(self._confirmed)
            told.append(self._unconfirmed.pop(self._confirmed))
        return told

    def _number(self, step: Step) -> Numbered:
        self._version += 1
        step = step._replace(number=self._version)
        self._unconfirmed[step.number] = Applied(step.number, step.pairs, step.losses)
        self._unsent.append(step)
        forward: tuple[Step, ...] = ()
        if step.closes or len(self._unsent) >= self._sync_every:
            forward, self._unsent = tuple(self._unsent), []
        return step, forward

    def _late(self, late: Applied) -> Applied | None:
        """Return a late gradient if it can be reported now. Else the newest step reports it, once it is applied."""
        if self._version not in self._unconfirmed:
            return late._replace(version=self._version)
        number, pairs, losses = self._unconfirmed[self._version]
        self._unconfirmed[self._version] = Applied(number, (*pairs, *late.pairs), (*losses, *late.losses))
        return None
