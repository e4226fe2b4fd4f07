"""The choice among several runs by time and cost, within a budget and a deadline such as `5usd` and `1h30min`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from dorylax.observers.progress import dollars, duration
from dorylax.simulation.scenario import ScenarioError

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DOLLARS = re.compile(rf"\$\s*({_NUMBER})|({_NUMBER})\s*(?:usd)?", re.IGNORECASE)
_UNITS = {"d": 86400.0, "h": 3600.0, "m(?:in)?": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in _UNITS), re.IGNORECASE)


class Price(NamedTuple):
    """The time of a run (seconds, T > 0) and its cost (US dollars, C ≥ 0)."""

    seconds: float
    dollars: float


class Wishes(NamedTuple):
    """Upper bounds in US dollars and seconds; None for no bound."""

    budget: float | None = None
    deadline: float | None = None

    def __str__(self) -> str:
        """The rule of the choice, in words."""
        which = "the best by value"
        if (self.budget is None) != (self.deadline is None):
            which = "the cheapest" if self.budget is None else "the fastest"
        return f"{which} {self.within}".rstrip()

    @property
    def within(self) -> str:
        """The bounds, in words; empty without any."""
        limits = [] if self.budget is None else [dollars(self.budget)]
        limits += [] if self.deadline is None else [duration(self.deadline)]
        return f"within {' and '.join(limits)}" if limits else ""

    def rank(self, price: Price) -> tuple[float, float]:
        """Sort key, the best first: seconds with a budget, dollars with a deadline, else T·C, the inverse of the value."""
        seconds, amount = price
        if (self.budget is None) == (self.deadline is None):
            return seconds * amount, seconds
        return (amount, seconds) if self.budget is None else (seconds, amount)

    def excess(self, price: Price) -> float:
        """The larger ratio of a price to its bound: at most 1 if the price is within both."""
        return max(price.dollars / (self.budget or math.inf), price.seconds / (self.deadline or math.inf))


def front(prices: Sequence[Price]) -> list[int]:
    """Places on the Pareto front of time and dollars, the fastest first; equal prices are all on it."""
    found = list[int]()
    for place in sorted(range(len(prices)), key=prices.__getitem__):
        if not found or prices[place].dollars < prices[found[-1]].dollars or prices[place] == prices[found[-1]]:
            found.append(place)
    return found


def pick(prices: Sequence[Price], wishes: Wishes) -> int | None:
    """Place of the first best price within the bounds, by `Wishes.rank`; None if no price is within them."""
    allowed = (place for place, price in enumerate(prices) if wishes.excess(price) <= 1)
    return min(allowed, key=lambda place: wishes.rank(prices[place]), default=None)


def nearest(prices: Sequence[Price], wishes: Wishes) -> int | None:
    """Place of the price with the smallest excess; None without prices."""
    return min(range(len(prices)), key=lambda place: (wishes.excess(prices[place]), prices[place]), default=None)


def dollars_of(text: str) -> float:
    """Parse an amount above 0 of US dollars, `5`, `5usd` or `$5`; others raise a ScenarioError."""
    match = _DOLLARS.fullmatch(text.strip())
    amount = 0.0 if match is None else float(match[1] or match[2])
    if not 0 < amount < math.inf:
        raise ScenarioError(f"a budget is an amount of US dollars above 0, such as 5usd or $0.50, got {text!r}")
    return amount


def seconds_of(text: str) -> float:
    """Parse a time above 0 with units to seconds, `3600s`, `90min`, `5m` or `1h30min`; others raise a ScenarioError."""
    match = _TIME.fullmatch(text.strip())
    found = () if match is None else match.groups()
    total = sum(float(count) * unit for count, unit in zip(found, _UNITS.values(), strict=False) if count is not None)
    if not 0 < total < math.inf:
        raise ScenarioError(
            f"a deadline is a time above 0 with its unit (s, m or min, h, d), such as 90min or 1h30m, got {text!r}"
        )
    return total
