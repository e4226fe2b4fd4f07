"""Which of several runs to choose, by what they take and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Price(NamedTuple):
    """What a run takes.

    Attributes:
        seconds: T > 0.
        dollars: C ≥ 0.
    """

    seconds: float
    dollars: float


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


def pick(prices: Sequence[Price], budget: float | None = None, deadline: float | None = None) -> int | None:
    """What to choose: the fastest within a budget, the cheapest within a deadline, else the best by value, 1/(T·C).

    Args:
        prices: of all that there is.
        budget: US dollars at most; None: as many as it takes.
        deadline: seconds at most; None: as long as it takes.

    Returns:
        Its place, the first of equals; None where nothing is within both.
    """
    within = [
        place
        for place, price in enumerate(prices)
        if (budget is None or price.dollars <= budget) and (deadline is None or price.seconds <= deadline)
    ]

    def rank(place: int) -> tuple[float, float]:
        seconds, dollars = prices[place]
        if (budget is None) == (deadline is None):
            return seconds * dollars, seconds
        return (dollars, seconds) if budget is None else (seconds, dollars)

    return min(within, key=rank, default=None)


def nearest(prices: Sequence[Price], budget: float | None = None, deadline: float | None = None) -> int | None:
    """What is beyond the budget or the deadline by the smallest factor; None where there is nothing at all.

    Args:
        prices: as of `pick`, which has found nothing.
        budget: likewise.
        deadline: likewise.
    """

    def beyond(place: int) -> tuple[float, Price]:
        seconds, dollars = price = prices[place]
        factors = [have / limit for have, limit in ((dollars, budget), (seconds, deadline)) if limit is not None]
        return max(factors, default=0.0), price

    return min(range(len(prices)), key=beyond, default=None)
