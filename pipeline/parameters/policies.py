"""Update policies: what becomes an optimizer step, and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol, final, runtime_checkable

import jax
import numpy as np

from dorylax.pipeline.parameters.records import Applied, Step, Tree


@runtime_checkable
class UpdatePolicy(Protocol):
    """Makes steps of complete gradients.

    Each gradient is in exactly one step of its epoch, or late. Once the gradients of all intervals up to an epoch have come,
    its steps are made.
    """

    @property
    def waiting(self) -> int:
        """How many gradients have come and are in no step yet."""
        ...

    def add(self, gradient: Step) -> Sequence[Step | Applied]:
        """Take an interval's gradient: each once, the epochs of an interval in order.

        Returns:
            The steps that can be made now, in order and not numbered. `Applied` of version 0 if the gradient is too late for
            the step of its epoch, and is in none.
        """
        ...

    def forget(self) -> None:
        """Goes on as a new one would, now that no gradient waits: what has been in steps stands in for nothing."""
        ...


@final
class OrderedSum:
    """Adds terms 0 … count-1 as `((t0 + t1) + t2) + …`, bit for bit the same for any order of arrival.

    A term is kept only until those before it have come.

    Args:
        count: how many terms there are.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: dict[int, Tree] = {}
        self._added = 0
        self._total: Tree = None

    def add(self, place: int, term: Tree) -> None:
        """Adds a term; each place once."""
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
        """The sum, arrays on the host; None while a term is missing."""
        return self._total if self._added == self._count else None


def _accumulate(total: np.ndarray, term: Any) -> None:
    np.add(total, np.asarray(term), out=total)


@final
class PerEpoch:
    """Sums the gradients of all intervals in the order of intervals, never in that of arrival; statistics are the first's.

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
        """See `UpdatePolicy`. An epoch cannot be whole before the one before it is: intervals go in order."""
        ((interval, epoch),) = gradient.pairs
        total, come = self._epochs.setdefault(epoch, (OrderedSum(self._num_intervals), {}))
        total.add(interval, gradient.gradients)
        come[interval] = gradient._replace(gradients=None)  # memory: it is in the sum
        if total.total is None:
            return []
        del self._epochs[epoch]
        return [_whole(epoch, [come[interval] for interval in range(self._num_intervals)], total.total)]

    def forget(self) -> None:
        """See `UpdatePolicy`."""


@final
class PerInterval:
    """Makes a step of each complete gradient.

    Args:
        num_intervals: K.
        scaling: K steps move as far as one step with the sum of K gradients would.
        made: of how many intervals the gradient of an epoch is in a step already, by epoch.
    """

    waiting = 0

    def __init__(self, num_intervals: int, *, scaling: bool = True, made: Mapping[int, int] | None = None) -> None:
        self._num_intervals, self._factor = num_intervals, num_intervals if scaling else 1
        self._come: Counter[int] = Counter(made or {})  # gradients by epoch, of epochs that are not whole

    def add(self, gradient: Step) -> list[Step]:
        """See `UpdatePolicy`."""
        self._come[gradient.epoch] += 1
        closes = self._come[gradient.epoch] == self._num_intervals
        if closes:
            del self._come[gradient.epoch]
        return [gradient._replace(factor=self._factor, closes=closes)]

    def forget(self) -> None:
        """See `UpdatePolicy`."""


@final
class LateGradients:
    """Makes the step of an epoch once enough of its gradients have come, and the step before it is made.

    As synchronous SGD with backup workers (Chen et al., 2016) in that a step needs only a share of the gradients. Nothing is
    left out: the last gradient of an interval stands in for a late one, so that the sum stays one over the whole graph.

    A gradient that comes later is in no step of its own epoch. It stands in for the interval's next one, should that be
    late too. The first epoch's step, and the first after `forget`, wait for all. Costs a copy of the gradient per interval.

    Args:
        num_intervals: K.
        share: of the gradients, above 0 and at most 1, rounded up.
    """

    def __init__(self, num_intervals: int, share: float) -> None:
        # The decimal that was written: in binary, 0.7 * 10 is a little more than 7.
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
class Switching:
    """Gives each gradient to the policy of its epoch: for runs that go from async to pipe.

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

    def add(self, gradient: Step) -> Sequence[Step | Applied]:
        """See `UpdatePolicy`."""
        policy = self._before if gradient.epoch < self._epoch else self._after
        return policy.add(gradient)

    def forget(self) -> None:
        """See `UpdatePolicy`."""
        self._before.forget()
        self._after.forget()


def _whole(epoch: int, everyone: Sequence[Step], gradients: Tree, come: Iterable[Step] | None = None) -> Step:
    """The step of an epoch with the gradients of all intervals, of which `come` are of this epoch."""
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
