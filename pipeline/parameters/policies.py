"""Update policies: they decide when gradients become an optimizer step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, final

import jax
import numpy as np

from dorylax.pipeline.parameters.records import Applied, Step, Tree


class UpdatePolicy(ABC):
    """Turns complete gradients into steps.

    Each gradient is in exactly one step of its epoch, or late. When the gradients of all intervals up to an epoch have
    arrived, the policy has returned all steps of that epoch.
    """

    @property
    def waiting(self) -> int:
        """The number of gradients that have arrived and are in no step yet."""
        return 0

    @abstractmethod
    def add(self, gradient: Step) -> Sequence[Step | Applied]:
        """Add an interval's gradient: each once, the epochs of an interval in order.

        Returns:
            The new steps, in order and not numbered. An `Applied` of version 0 if the gradient is too late for the step of
            its epoch.
        """

    def forget(self) -> None:  # noqa: B027
        """Drop everything that a checkpoint does not save. No gradient may be waiting."""


@final
class OrderedSum:
    """Adds terms 0 … count-1 as `((t0 + t1) + t2) + …`, with the same bits for any order of arrival.

    A term is kept until all terms before it have arrived.

    Args:
        count: The number of terms.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: dict[int, Tree] = {}
        self._added = 0
        self._total: Tree = None

    def add(self, place: int, term: Tree) -> None:
        """Add a term; each place once."""
        self._waiting[place] = term
        while self._added in self._waiting:
            following = self._waiting.pop(self._added)
            if self._added:
                jax.tree.map(_accumulate, self._total, following)
            else:
                self._total = jax.tree.map(lambda leaf: np.array(leaf, copy=True), following)
            self._added += 1

    @property
    def total(self) -> Tree | None:
        """The sum, as arrays on the host; None while a term is missing."""
        return self._total if self._added == self._count else None


def _accumulate(total: np.ndarray, term: Any) -> None:
    np.add(total, np.asarray(term), out=total)


@final
class PerEpoch(UpdatePolicy):
    """Sums the gradients of all intervals in the order of intervals. The statistics are those of the first interval.

    Args:
        num_intervals: K.
    """

    def __init__(self, num_intervals: int) -> None:
        self._num_intervals = num_intervals
        self._epochs: dict[int, tuple[OrderedSum, dict[int, Step]]] = {}

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return sum(len(come) for _, come in self._epochs.values())

    def add(self, gradient: Step) -> list[Step]:
        """See `UpdatePolicy`. Epochs become complete in order, because intervals compute them in order."""
        ((interval, epoch),) = gradient.pairs
        total, come = self._epochs.setdefault(epoch, (OrderedSum(self._num_intervals), {}))
        total.add(interval, gradient.gradients)
        come[interval] = gradient._replace(gradients=None)  # the sum contains it, so free its memory
        if total.total is None:
            return []
        del self._epochs[epoch]
        return [_whole(epoch, [come[interval] for interval in range(self._num_intervals)], total.total)]


@final
class PerInterval(UpdatePolicy):
    """Turns each complete gradient into a step.

    Args:
        num_intervals: K.
        scaling: Whether K steps move as far as one step with the sum of K gradients.
        made: Epoch → the number of intervals whose gradient of that epoch is already in a step.
    """

    def __init__(self, num_intervals: int, *, scaling: bool = True, made: Mapping[int, int] | None = None) -> None:
        self._num_intervals, self._factor = num_intervals, num_intervals if scaling else 1
        self._come: Counter[int] = Counter(made or {})  # gradients by epoch, of incomplete epochs

    def add(self, gradient: Step) -> list[Step]:
        """See `UpdatePolicy`."""
        self._come[gradient.epoch] += 1
        closes = self._come[gradient.epoch] == self._num_intervals
        if closes:
            del self._come[gradient.epoch]
        return [gradient._replace(factor=self._factor, closes=closes)]


@final
class LateGradients(UpdatePolicy):
    """Makes the step of an epoch after the step before it, when enough gradients have arrived.

    As in synchronous SGD with backup workers (Chen et al., 2016), a step needs only a share of the gradients. The last
    gradient of an interval replaces a late one, so the sum still covers the whole graph.

    A late gradient is in no step of its epoch. It replaces the interval's next gradient if that is late too. The first step,
    and the first after `forget`, wait for all gradients. Keeps a copy of the gradient per interval.

    Args:
        num_intervals: K.
        share: The share of the gradients, in (0, 1], rounded up.
    """

    def __init__(self, num_intervals: int, share: float) -> None:
        # Use the decimal as written: in binary, 0.7 * 10 is a little more than 7.
        self._num_intervals, self._enough = num_intervals, math.ceil(Fraction(str(share)) * num_intervals)
        self._last: dict[int, Step] = {}  # interval -> the newest that is in a step, or was too late for one
        self._come: dict[int, dict[int, Step]] = {}  # epoch -> interval -> gradient, of epochs without a step
        self._stepped: int | None = None

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return sum(map(len, self._come.values()))

    def forget(self) -> None:
        """See `UpdatePolicy`."""
        self._last.clear()

    def add(self, gradient: Step) -> list[Step | Applied]:
        """See `UpdatePolicy`."""
        ((interval, epoch),) = gradient.pairs
        if self._stepped is not None and epoch <= self._stepped:
            self._last[interval] = gradient
            return [Applied(0, gradient.pairs, gradient.losses)]
        self._come.setdefault(epoch, {})[interval] = gradient
        steps: list[Step | Applied] = []
        while self._come and self._is_due(min(self._come)):
            steps.append(self._step(min(self._come)))
        return steps

    def _is_due(self, epoch: int) -> bool:
        come = self._come[epoch]
        if self._stepped is not None and epoch != self._stepped + 1:
            return False
        return len(come) >= self._enough and len(come.keys() | self._last.keys()) == self._num_intervals

    def _step(self, epoch: int) -> Step:
        come = self._come.pop(epoch)
        self._stepped, self._last = epoch, self._last | come
        everyone = [self._last[interval] for interval in range(self._num_intervals)]
        total = OrderedSum(self._num_intervals)
        for interval, gradient in enumerate(everyone):
            total.add(interval, gradient.gradients)
        return _whole(epoch, everyone, total.total, [come[interval] for interval in sorted(come)])


@final
class Switching(UpdatePolicy):
    """Passes each gradient to the policy of its epoch, for runs that switch from async to pipe.

    Args:
        before: The policy of epochs before `epoch`.
        after: The policy of all other epochs.
        epoch: The first epoch of `after`. No interval may start it before all have finished the earlier epochs.
    """

    def __init__(self, before: UpdatePolicy, after: UpdatePolicy, epoch: int) -> None:
        self._before, self._after, self._epoch = before, after, epoch

    @property
    def waiting(self) -> int:
        """See `UpdatePolicy`."""
        return self._before.waiting + self._after.waiting

    def add(self, gradient: Step) -> Sequence[Step | Applied]:
        """See `UpdatePolicy`."""
        policy = self._before if gradient.epoch < self._epoch else self._after
        return policy.add(gradient)

    def forget(self) -> None:
        """See `UpdatePolicy`."""
        self._before.forget()
        self._after.forget()


def _whole(epoch: int, everyone: Sequence[Step], gradients: Tree, come: Iterable[Step] | None = None) -> Step:
    """Return the step of an epoch with the gradients of all intervals; those in `come` are of this epoch."""
    come = everyone if come is None else list(come)
    return Step(
        0,
        epoch,
        gradients,
        sum(one.loss for one in everyone),
        statistics=everyone[0].statistics,
        pairs=tuple(pair for one in come for pair in one.pairs),
        losses=tuple(loss for one in come for loss in one.losses),
    )
