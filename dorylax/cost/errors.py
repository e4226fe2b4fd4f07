"""The error of cluster descriptions, and the check of bounds."""

from __future__ import annotations

import math
from typing import final

from dorylax.errors import DorylaxError


@final
class ClusterError(DorylaxError, ValueError):
    """An invalid cluster; its text is one line for the user.

    Attributes:
        key: The wrong dotted key, `graph_server.threads`; empty if there is none.
        problem: The problem with its value.
    """

    def __init__(self, key: str, problem: str, where: str = "") -> None:
        self.key, self.problem = key, problem
        super().__init__((f"{where}: " if where else "") + (f"{key} " if key else "") + problem)


def check_bounds(owner: object, least: float, *keys: str, above: bool = False, below: float = math.inf) -> None:
    """Raise a ClusterError unless these fields are finite, ≥ `least` (> `least` if `above`) and < `below`."""
    for key in keys:
        value: float | int = getattr(owner, key)
        if not (value > least or (value == least and not above)) or not value < below:
            bounds = f"{'>' if above else '≥'} {least:g}"
            more = f" and < {below:g}" if below < math.inf else "" if math.isfinite(value) else " and finite"
            raise ClusterError(key, f"must be {bounds}{more}, got {value}")
