"""The check of a number's bounds in cluster descriptions."""

from __future__ import annotations

import math

from dorylax.settings.errors import ConfigError


def check_bounds(owner: object, key: str, least: float, *, above: bool = False, below: float = math.inf) -> None:
    """Raise ConfigError unless a field is finite, ≥ `least` (> `least` if `above`) and < `below`."""
    value: float | int = getattr(owner, key)
    if not (value > least or (value == least and not above)) or not value < below:
        bounds = f"{'>' if above else '≥'} {least:g}"
        more = f" and < {below:g}" if below < math.inf else "" if math.isfinite(value) else " and finite"
        raise ConfigError.of(key, f"must be {bounds}{more}, got {value}")
