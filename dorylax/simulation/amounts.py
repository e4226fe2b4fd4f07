"""What people say that a run may cost and take: `5usd`, `$5`, `90min`, `1h30min`."""

from __future__ import annotations

import re

from dorylax.simulation.scenario import ScenarioError

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_DOLLARS = re.compile(rf"\$\s*({_NUMBER})|({_NUMBER})\s*(?:usd)?", re.IGNORECASE)
_UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in _UNITS), re.IGNORECASE)


def dollars(text: str) -> float:
    """US dollars: `5`, `5usd` or `$5`.

    Raises:
        ScenarioError: it is no amount above 0.
    """
    match = _DOLLARS.fullmatch(text.strip())
    amount = 0.0 if match is None else float(match[1] or match[2])
    if not 0 < amount < float("inf"):
        raise ScenarioError(f"a budget is an amount of US dollars above 0, such as 5usd or $0.50, got {text!r}")
    return amount


def seconds(text: str) -> float:
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
