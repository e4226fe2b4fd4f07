"""What a parameter server knows and decides, without messages or time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.pipeline.parameters.intervals import Assembly, Due, Stash
from dorylax.pipeline.parameters.records import Pulled, Push, ServerState, Step, Sums


@final
class ParameterServer:
    """One parameter server: newest version, stashed versions and unfinished gradients of the intervals bound to it.

    Args:
        state: what it starts from.
        stages: the stages that push in every interval and epoch.
        first: the first epoch.
        most_ahead: how many intervals may pull weights for an epoch that lack the step of the one before; None for any
            number.
        due: as of `Sequencer`.

    Attributes:
        state: the newest version.
        due: which gradients are not in it.
    """

    def __init__(
        self,
        state: ServerState,
        stages: Sequence[int],
        first: int,
        most_ahead: int | None = None,
        due: Sequence[int] | None = None,
    ) -> None:
        self.state = state
        self.due = Due(first) if due is None else Due(min(due), dict(enumerate(due)))
        self._most_ahead = most_ahead
        self._run_ahead: dict[int, set[int]] = {}  # epoch -> the intervals that may be ahead in it
        self._first, self._first_version = self.due.closed, state.version
        self._assembly = Assembly(stages, first)
        self._stash = Stash(first)
        self._steps: dict[int, Step] = {}

    @property
    def live_stashes(self) -> int:
        """How many intervals hold weights."""
        return len(self._stash)

    @property
    def pending(self) -> int:
        """Gradients and steps that have come in part, or before their time."""
        return len(self._assembly) + len(self._steps)

    def ahead(self, epoch: int) -> int:
        """How many updates an interval in this epoch is ahead of the newest version, where each epoch has one."""
        return max(0, (epoch - self._first) - (self.state.version - self._first_version))

    def may_pull(self, interval: int, epoch: int) -> bool:
        """Whether an interval need not wait for newer weights. Who may run ahead, may for good: nobody takes its place."""
        if not self.ahead(epoch):
            return True
        if not self.state.may_be_ahead:
            return False
        if self._most_ahead is None:
            return True
        self._run_ahead = {e: found for e, found in self._run_ahead.items() if self.ahead(e)}
        found = self._run_ahead.setdefault(epoch, set())
        if len(found) < self._most_ahead:
            found.add(interval)
        return interval in found

    def pull(self, interval: int, epoch: int, offered: Pulled | None = None) -> Pulled:
        """The weights of an interval in an epoch.

        Args:
            interval: k.
            epoch: of the interval.
            offered: what it gets if this is its first pull of the epoch, rather than the newest version; ever after it gets
                what it got.

        Raises:
            RunError: see `Stash.pull`.
        """
        newest = self.state
        if offered is None:
            offered = Pulled(newest.version, newest.params, newest.state, exact=not newest.may_be_ahead)
        return self._stash.pull(interval, epoch, offered)

    def push(self, push: Push) -> tuple[Pulled, Mapping[int, Sums]] | None:
        """Take what a stage gives; a repeat changes nothing.

        Returns:
            The version that the interval has computed with and the sums of all its stages, when this was what was missing.
            The stash is then released.

        Raises:
            ValueError: see `Assembly.add`.
            RunError: the interval has pulled no weights for this epoch.
        """
        sums = self._assembly.add(push)
        if sums is None:
            return None
        return self._stash.release(push.interval, push.epoch), sums

    def receive(self, steps: Sequence[Step]) -> None:
        """Take steps to apply, in any order and any number of times."""
        self._steps |= {step.number: step for step in steps if step.number > self.state.version}

    def next_step(self) -> Step | None:
        """The step that follows the newest version; None where it has not come."""
        return self._steps.get(self.state.version + 1)

    def advance(self, state: ServerState) -> None:
        """Make the result of `next_step` the newest version.

        Raises:
            ValueError: it is another version.
        """
        if state.version != self.state.version + 1:
            raise ValueError(f"version {state.version} does not follow version {self.state.version}")
        step = self._steps.pop(state.version, None)
        self.state = state
        if step is not None:
            self.due.add(step)
