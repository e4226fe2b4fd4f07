from __future__ import annotations

import pytest

from dorylax.simulation import amounts
from dorylax.simulation.scenario import ScenarioError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5usd", 5.0), ("$5", 5.0), ("5", 5.0), ("0.25 USD", 0.25), ("$.5", 0.5), (" 12. ", 12.0), ("$ 3", 3.0)],
)
def test_dollars(text, expected):
    assert amounts.dollars(text) == expected


@pytest.mark.parametrize(
    "text", ["", "usd", "5eur", "$5usd", "-5", "0", "0usd", "1e3", "5 usd a run", "nan", "inf", "1,000", "9" * 400]
)
def test_no_dollars(text):
    with pytest.raises(
        ScenarioError, match=r"a budget is an amount of US dollars above 0, such as 5usd or \$0.50, got "
    ):
        amounts.dollars(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", 3600.0),
        ("90min", 5400.0),
        ("3600s", 3600.0),
        ("1h30min", 5400.0),
        ("1 h 30 min", 5400.0),
        ("0.5h", 1800.0),
        ("1d2h", 93600.0),
        ("1H", 3600.0),
        ("1min30s", 90.0),
    ],
)
def test_seconds(text, expected):
    assert amounts.seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "90", "1m", "h", "30min1h", "-1h", "0s", "1h1h", "soon", "1e3s", "1hour", "9" * 400 + "s"]
)
def test_no_seconds(text):
    with pytest.raises(ScenarioError, match=r"a deadline is a time above 0 with its unit \(s, min, h, d\), such as "):
        amounts.seconds(text)
