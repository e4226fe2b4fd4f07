from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.simulation.choice import Price, Wishes, dollars_of, front, nearest, pick, seconds_of
from dorylax.simulation.scenario import ScenarioError

# Few different numbers, so that many are equal.
_AMOUNTS = st.integers(1, 12).map(float)
_PRICES = st.lists(st.builds(Price, _AMOUNTS, _AMOUNTS | st.just(0.0)), max_size=14)
_LIMITS = st.none() | _AMOUNTS


def beats(one: Price, other: Price) -> bool:
    """In one of the two, and not worse in the other."""
    return one.seconds <= other.seconds and one.dollars <= other.dollars and one != other


@given(_PRICES)
def test_the_front_is_what_nothing_beats(prices):
    found = front(prices)
    assert sorted(found) == [
        place for place, price in enumerate(prices) if not any(beats(other, price) for other in prices)
    ]
    assert [prices[place] for place in found] == sorted(prices[place] for place in found)


@given(_PRICES, _LIMITS, _LIMITS)
def test_what_is_picked_is_allowed_and_on_the_front(prices, budget, deadline):
    wishes = Wishes(budget, deadline)
    found = pick(prices, wishes)
    allowed = [price for price in prices if price.seconds <= (deadline or 99) and price.dollars <= (budget or 99)]
    assert (found is None) == (not allowed)
    if found is not None:
        assert prices[found] in allowed
        if prices[found].dollars:  # of what costs nothing all have the same value
            assert found in front(prices)


@given(_PRICES, _AMOUNTS, _AMOUNTS)
def test_each_wish_gets_the_best(prices, budget, deadline):
    within = [price for price in prices if price.dollars <= budget]
    in_time = [price for price in prices if price.seconds <= deadline]
    both = [price for price in within if price in in_time]
    for wishes, allowed, measure in (
        (Wishes(budget), within, lambda price: price.seconds),
        (Wishes(deadline=deadline), in_time, lambda price: price.dollars),
        (Wishes(budget, deadline), both, lambda price: price.seconds * price.dollars),
        (Wishes(), prices, lambda price: price.seconds * price.dollars),
    ):
        found = pick(prices, wishes)
        assert (None if found is None else measure(prices[found])) == min(map(measure, allowed), default=None)


@given(_PRICES, _AMOUNTS, _AMOUNTS)
def test_more_money_is_never_slower_and_more_time_never_dearer(prices, limit, more):
    few, many = (pick(prices, Wishes(budget=amount)) for amount in (limit, limit + more))
    assert few is None or (many is not None and prices[many].seconds <= prices[few].seconds)
    few, many = (pick(prices, Wishes(deadline=amount)) for amount in (limit, limit + more))
    assert few is None or (many is not None and prices[many].dollars <= prices[few].dollars)


@given(_PRICES.filter(bool), _LIMITS, _LIMITS)
def test_the_nearest_fits_first_where_limits_grow(prices, budget, deadline):
    wishes = Wishes(budget, deadline)
    found = nearest(prices, wishes)
    factor = wishes.excess(prices[found])
    assert all(wishes.excess(price) >= factor for price in prices)
    assert (factor <= 1) == (pick(prices, wishes) is not None)


def test_nothing_is_near_nothing():
    assert nearest([], Wishes(1.0)) is None
    assert front([]) == []


def test_wishes_in_words():
    assert str(Wishes()) == "the best by value"
    assert str(Wishes(5.0)) == "the fastest within $5.00"
    assert str(Wishes(deadline=5400.0)) == "the cheapest within 1 h 30 min"
    assert str(Wishes(5.0, 60.0)) == "the best by value within $5.00 and 1 min 00 s"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5usd", 5.0), ("$5", 5.0), ("5", 5.0), ("0.25 USD", 0.25), ("$.5", 0.5), (" 12. ", 12.0), ("$ 3", 3.0)],
)
def test_dollars(text, expected):
    assert dollars_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "usd", "5eur", "$5usd", "-5", "0", "0usd", "1e3", "5 usd a run", "nan", "inf", "1,000", "9" * 400]
)
def test_no_dollars(text):
    with pytest.raises(
        ScenarioError, match=r"a budget is an amount of US dollars above 0, such as 5usd or \$0.50, got "
    ):
        dollars_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", 3600.0),
        ("90min", 5400.0),
        ("3600s", 3600.0),
        ("1h30min", 5400.0),
        ("5m", 300.0),
        ("1 h 30 min", 5400.0),
        ("0.5h", 1800.0),
        ("1d2h", 93600.0),
        ("1H", 3600.0),
        ("1min30s", 90.0),
    ],
)
def test_seconds(text, expected):
    assert seconds_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "90", "1mo", "h", "30min1h", "-1h", "0s", "1h1h", "soon", "1e3s", "1hour", "9" * 400 + "s"]
)
def test_no_seconds(text):
    with pytest.raises(
        ScenarioError, match=r"a deadline is a time above 0 with its unit \(s, m or min, h, d\), such as "
    ):
        seconds_of(text)
