"""The state and the decisions of one parameter server, without messages or time.

An interval's backward pass uses the weights, and the model's state, of its forward pass (dorylus.md §4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.errors import RunError
from dorylax.pipeline.parameters.records import Pulled, Push, ServerState, Step, Sums


@final
class EpochsSeen:
    """A set of (interval, epoch) pairs, small if each interval's epochs are added nearly in order.

    Args:
        first: The first epoch. All earlier epochs count as seen.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._before: dict[int, int] = {}  # interval -> all epochs before this one are seen
        self._ahead: dict[int, set[int]] = {}

    def __contains__(self, pair: tuple[int, int]) -> bool:
        interval, epoch = pair
        return epoch < self._before.get(interval, self._first) or epoch in self._ahead.get(interval, ())

    def add(self, interval: int, epoch: int) -> None:
        """Add a pair."""
        ahead = self._ahead.setdefault(interval, set())
        ahead.add(epoch)
        before = self._before.get(interval, self._first)
        while before in ahead:
            ahead.remove(before)
            before += 1
        self._before[interval] = before


@final
class Assembly:
    """Collects sums by (interval, epoch, stage), and ignores repeats.

    Args:
        stages: The stages that push in every interval and epoch.
        first: The first epoch.

    Raises:
        ValueError: `stages` is empty.
    """

    def __init__(self, stages: Sequence[int], first: int) -> None:
        if not stages:
            raise ValueError("stages must name at least one stage that pushes, got none")
        self._stages = tuple(sorted(set(stages)))
        self._parts: dict[tuple[int, int], dict[int, Sums]] = {}
        self._whole = EpochsSeen(first)

    def __len__(self) -> int:
        """Return the number of (interval, epoch) pairs with some of their sums but not all."""
        return len(self._parts)

    def add(self, push: Push) -> Mapping[int, Sums] | None:
        """Add the sums of one stage.

        Returns:
            After the last stage, the sums of all stages in stage order, once per interval and epoch; else None.

        Raises:
            ValueError: The stage pushes no gradient.
        """
        if push.stage not in self._stages:
            raise ValueError(
                f"stage {push.stage} pushes no gradient: those that do are {', '.join(map(str, self._stages))}"
            )
        pair = (push.interval, push.epoch)
        if pair in self._whole:
            return None
        parts = self._parts.setdefault(pair, {})
        parts.setdefault(push.stage, push.sums)
        if len(parts) < len(self._stages):
            return None
        del self._parts[pair]
        self._whole.add(*pair)
        return {stage: parts[stage] for stage in self._stages}


@final
class Stash:
    """The stashed version of each computing interval, one epoch at a time. Arrays are shared, not copied.

    Args:
        first: The first epoch.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._kept: dict[int, tuple[int, Pulled]] = {}  # interval -> epoch, version
        self._next: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of stashed versions, at most one per interval."""
        return len(self._kept)

    def pull(self, interval: int, epoch: int, newest: Pulled) -> Pulled:
        """Return the version of an interval for an epoch. The first call stashes `newest`; later calls return it.

        Raises:
            RunError: The epoch's gradient is complete, or that of an earlier epoch is not.
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
        """Remove the version of an interval whose gradient is complete, and return it.

        Raises:
            RunError: The interval has pulled no version for this epoch.
        """
        kept = self._kept.get(interval)
        if kept is None or kept[0] != epoch:
            raise RunError(
                f"interval {interval} pushed a gradient of epoch {epoch} without having pulled weights for it"
            )
        del self._kept[interval]
        self._next[interval] = epoch + 1
        return kept[1]


@final
class PendingEpochs:
    """The epoch of each interval's first gradient that the newest version lacks.

    Args:
        closed: The first epoch that no step has closed. No interval is due earlier.
        ahead: Interval → epoch, for intervals that are due later.
    """

    def __init__(self, closed: int, ahead: Mapping[int, int] | None = None) -> None:
        self.closed = closed
        self._ahead = dict(ahead or {})

    def add(self, step: Step) -> None:
        """Record that the newest version contains a step; steps come in order."""
        if step.closes:
            self.closed = step.epoch + 1
            self._ahead = {interval: epoch for interval, epoch in self._ahead.items() if epoch > self.closed}
            return
        for interval, epoch in step.pairs:
            self._ahead[interval] = epoch + 1

    def of(self, num_intervals: int) -> list[int]:
        """Return the due epoch of every interval."""
        return [max(self.closed, self._ahead.get(interval, self.closed)) for interval in range(num_intervals)]


@final
class ParameterServer:
    """One parameter server: the newest version, and the stashes and partial gradients of its intervals.

    Args:
        state: The newest version, at first the one to start from.
        stages: The stages that push in every interval and epoch.
        first: The first epoch.
        most_ahead: The number of intervals that may pull weights that lack the step of the previous epoch; None for all.
        due: The `Sequencer` argument of that name; the attribute `pending_epochs` tells the gradients that `state` lacks.
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
        self.pending_epochs = PendingEpochs(first) if due is None else PendingEpochs(min(due), dict(enumerate(due)))
        self._most_ahead = most_ahead
        self._run_ahead: dict[int, set[int]] = {}  # epoch -> the intervals that may be ahead in it
        self._first, self._first_version = self.pending_epochs.closed, state.version
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
            self.pending_epochs.add(step)
