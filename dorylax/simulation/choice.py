"""The choice among several runs by time and cost, within a budget and a deadline such as `5usd` and `1h30min`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dorylax.observers.progress import dollars, duration
from dorylax.simulation.scenario import ScenarioError

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DOLLARS = re.compile(rf"\$\s*({_NUMBER})|({_NUMBER})\s*(?:usd)?", re.IGNORECASE)
_UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in _UNITS), re.IGNORECASE)


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


def dollars_of(text: str) -> float:
    """US dollars: `5`, `5usd` or `$5`.

    Raises:
        ScenarioError: it is no amount above 0.
    """
    match = _DOLLARS.fullmatch(text.strip())
    amount = 0.0 if match is None else float(match[1] or match[2])
    if not 0 < amount < float("inf"):
        raise ScenarioError(f"a budget is an amount of US dollars above 0, such as 5usd or $0.50, got {text!r}")
    return amount


def seconds_of(text: str) -> float:
    """Days, hours, minutes and seconds, as seconds: `3600s`, `90min`, `1h30min`. A number alone could be any of them.

    Raises:
        ScenarioError: it is no time above 0, or has no unit.
    """
    match = _TIME.fullmatch(text.strip())
    found = () if match is None else match.groups()
    total = sum(float(count) * unit for count, unit in zip(found, _UNITS.values(), strict=False) if count is not None)
    if not 0 < total < float("inf"):
        raise ScenarioError(
            f"a deadline is a time above 0 with its unit (s, min, h, d), such as 90min or 1h30min, got {text!r}"
        )
    return total
