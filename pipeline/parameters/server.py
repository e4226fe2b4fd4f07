"""The state and the decisions of one parameter server, without messages or time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.pipeline.parameters.intervals import Assembly, Due, Stash
from dorylax.pipeline.parameters.records import Pulled, Push, ServerState, Step, Sums


@final
class ParameterServer:
    """One parameter server: the newest version, and the stashes and partial gradients of its intervals.

    Args:
        state: The newest version, at first the one to start from.
        stages: The stages that push in every interval and epoch.
        first: The first epoch.
        most_ahead: The number of intervals that may pull weights that lack the step of the previous epoch; None for all.
        due: The `Sequencer` argument of that name; the attribute tells the gradients that `state` lacks.
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
        """The number of intervals that hold weights."""
        return len(self._stash)

    @property
    def pending(self) -> int:
        """The number of partial gradients, and of steps that wait for an earlier one."""
        return len(self._assembly) + len(self._steps)

    def ahead(self, epoch: int) -> int:
        """Return how far this epoch is ahead of the newest version, in updates, with one update per epoch."""
        return max(0, (epoch - self._first) - (self.state.version - self._first_version))

    def may_pull(self, interval: int, epoch: int) -> bool:
        """Return whether an interval may pull now. An interval that may run ahead keeps its place for the epoch."""
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
        """Return the weights of an interval for an epoch. Every pull of that epoch returns the same weights.

        Args:
            interval: k.
            epoch: The epoch of the interval.
            offered: The weights for a first pull of the epoch; None offers the newest version.

        Raises:
            RunError: `Stash.pull` refuses the pull.
        """
        newest = self.state
        if offered is None:
            offered = Pulled(newest.version, newest.params, newest.state, exact=not newest.may_be_ahead)
        return self._stash.pull(interval, epoch, offered)

    def push(self, push: Push) -> tuple[Pulled, Mapping[int, Sums]] | None:
        """Add the sums of one stage. Repeats are ignored.

        Returns:
            After the last stage, the version that the interval computed with and the sums of all stages; else None. The
            last push releases the stash.

        Raises:
            ValueError: `Assembly.add` refuses the push.
            RunError: The interval has pulled no weights for this epoch.
        """
        sums = self._assembly.add(push)
        if sums is None:
            return None
        return self._stash.release(push.interval, push.epoch), sums

    def receive(self, steps: Sequence[Step]) -> None:
        """Keep steps to apply. They may arrive in any order, and more than once."""
        self._steps |= {step.number: step for step in steps if step.number > self.state.version}

    def next_step(self) -> Step | None:
        """Return the step that follows the newest version, or None if it has not arrived."""
        return self._steps.get(self.state.version + 1)

    def advance(self, state: ServerState) -> None:
        """Make the result of `next_step` the newest version.

        Raises:
            ValueError: The state is not the next version.
        """
        if state.version != self.state.version + 1:
            raise ValueError(f"version {state.version} does not follow version {self.state.version}")
        step = self._steps.pop(state.version, None)
        self.state = state
        if step is not None:
            self.due.add(step)
