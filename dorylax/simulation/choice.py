"""Which of several runs to choose, by what they take and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dorylax.observers.progress import dollars, duration


class Price(NamedTuple):
    """What a run takes.

    Attributes:
        seconds: T > 0.
        dollars: C ≥ 0.
    """

    seconds: float
    dollars: float


class Wishes(NamedTuple):
    """What to choose by.

    Attributes:
        budget: US dollars at most; None: as many as it takes.
        deadline: seconds at most; None: as long as it takes.
    """

    budget: float | None = None
    deadline: float | None = None

    def __str__(self) -> str:
        """What is chosen, in words."""
        which = "the best by value"
        if (self.budget is None) != (self.deadline is None):
            which = "the cheapest" if self.budget is None else "the fastest"
        return f"{which} {self.within}".rstrip()

    @property
    def within(self) -> str:
        """The limits, in words; empty where there are none."""
        limits = [] if self.budget is None else [dollars(self.budget)]
        limits += [] if self.deadline is None else [duration(self.deadline)]
        return f"within {' and '.join(limits)}" if limits else ""

    def allow(self, price: Price) -> bool:
        """Whether it is within both."""
        seconds, amount = price
        return (self.budget is None or amount <= self.budget) and (self.deadline is None or seconds <= self.deadline)

    def rank(self, price: Price) -> tuple[float, float]:
        """What to choose has the least: seconds within a budget, dollars within a deadline, else T·C: the most value."""
        seconds, amount = price
        if (self.budget is None) == (self.deadline is None):
            return seconds * amount, seconds
        return (amount, seconds) if self.budget is None else (seconds, amount)

    def beyond(self, price: Price) -> float:
        """By which factor it is beyond the budget or the deadline, whichever is larger."""
        seconds, amount = price
        return max(
            0.0 if self.budget is None else amount / self.budget,
            0.0 if self.deadline is None else seconds / self.deadline,
        )


def front(prices: Sequence[Price]) -> list[int]:
    """The Pareto front of time and dollars: those that no other beats in one without being worse in the other.

    Returns:
        Their places, the fastest first. Of those that are equal in both all are there.
    """
    found = list[int]()
    for place in sorted(range(len(prices)), key=prices.__getitem__):
        if not found or prices[place].dollars < prices[found[-1]].dollars or prices[place] == prices[found[-1]]:
            found.append(place)
    return found


def pick(prices: Sequence[Price], wishes: Wishes) -> int | None:
    """What to choose: the fastest within a budget, the cheapest within a deadline, else the best by value, 1/(T·C).

    Returns:
        Its place, the first of equals; None where nothing is within both.
    """
    allowed = (place for place, price in enumerate(prices) if wishes.allow(price))
    return min(allowed, key=lambda place: wishes.rank(prices[place]), default=None)


def nearest(prices: Sequence[Price], wishes: Wishes) -> int | None:
    """What is beyond budget and deadline by the smallest factor; None where there is nothing at all."""
    return min(range(len(prices)), key=lambda place: (wishes.beyond(prices[place]), prices[place]), default=None)
