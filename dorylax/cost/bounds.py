"""The check of numbers' bounds in cluster descriptions."""

from __future__ import annotations

import math

from dorylax.settings.errors import ConfigError


def check_bounds(owner: object, least: float, *keys: str, above: bool = False, below: float = math.inf) -> None:
    """Raise a ConfigError unless these fields are finite, ≥ `least` (> `least` if `above`) and < `below`."""
    for key in keys:
        value: float | int = getattr(owner, key)
        if not (value > least or (value == least and not above)) or not value < below:
            bounds = f"{'>' if above else '≥'} {least:g}"
            more = f" and < {below:g}" if below < math.inf else "" if math.isfinite(value) else " and finite"
            raise ConfigError.of(key, f"must be {bounds}{more}, got {value}")
