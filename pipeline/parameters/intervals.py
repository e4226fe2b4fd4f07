"""The state of each interval on its parameter server: partial sums, stashed version, and the epoch that is due.

An interval's backward pass uses the weights, and the model's state, of its forward pass (dorylus.md §4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from dorylax.errors import RunError
from dorylax.pipeline.parameters.records import Pulled, Push, Step, Sums


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
class Due:
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
