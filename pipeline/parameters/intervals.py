"""What a parameter server keeps of each interval: unfinished sums, the stashed version, and the epoch that is due.

An interval's backward pass uses the weights, and the model's state, of its forward pass (dorylus.md §4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.errors import RunError
from dorylax.pipeline.parameters.records import Pulled, Push, Step, Sums


@final
class EpochsSeen:
    """A set of pairs to which epochs of each interval are added nearly in order.

    Args:
        first: all earlier epochs count as seen.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._before: dict[int, int] = {}  # interval -> all epochs before this one are seen
        self._ahead: dict[int, set[int]] = {}

    def __contains__(self, pair: tuple[int, int]) -> bool:
        interval, epoch = pair
        return epoch < self._before.get(interval, self._first) or epoch in self._ahead.get(interval, ())

    def add(self, interval: int, epoch: int) -> None:
        """Adds a pair."""
        ahead = self._ahead.setdefault(interval, set())
        ahead.add(epoch)
        before = self._before.get(interval, self._first)
        while before in ahead:
            ahead.remove(before)
            before += 1
        self._before[interval] = before


@final
class Assembly:
    """Sums by (interval, epoch, stage), each taken once however often it comes.

    Args:
        stages: the stages that push in every interval and epoch.
        first: the first epoch.

    Raises:
        ValueError: no stage.
    """

    def __init__(self, stages: Sequence[int], first: int) -> None:
        if not stages:
            raise ValueError("stages must name at least one stage that pushes, got none")
        self._stages = tuple(sorted(set(stages)))
        self._parts: dict[tuple[int, int], dict[int, Sums]] = {}
        self._whole = EpochsSeen(first)

    def __len__(self) -> int:
        """How many (interval, epoch) pairs have some of their sums and not all."""
        return len(self._parts)

    def add(self, push: Push) -> Mapping[int, Sums] | None:
        """Takes what a stage gives.

        Returns:
            The sums of all stages, in stage order, when this was the last that was missing: once per interval and epoch.

        Raises:
            ValueError: a stage that is not one of those that push.
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


@final
class Due:
    """The epoch of each interval's first gradient that is not in the newest version.

    Args:
        closed: no interval is due before this epoch.
        ahead: of intervals that are due later, by their number.

    Attributes:
        closed: as given; later, the first epoch that no step has closed.
    """

    def __init__(self, closed: int, ahead: Mapping[int, int] | None = None) -> None:
        self.closed = closed
        self._ahead = dict(ahead or {})

    def add(self, step: Step) -> None:
        """Note that a step is in the version; steps come in order."""
        if step.closes:
            self.closed = step.epoch + 1
            self._ahead = {interval: epoch for interval, epoch in self._ahead.items() if epoch > self.closed}
            return
        for interval, epoch in step.pairs:
            self._ahead[interval] = epoch + 1

    def of(self, num_intervals: int) -> list[int]:
        """All of them."""
        return [max(self.closed, self._ahead.get(interval, self.closed)) for interval in range(num_intervals)]
