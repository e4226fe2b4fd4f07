"""What a wrong cluster description says, and the check that all its parts share."""

from __future__ import annotations

import math
from typing import final

from dorylax.errors import DorylaxError


@final
class ClusterError(DorylaxError, ValueError):
    """A cluster that cannot be; its text is one line for the user.

    Attributes:
        key: the dotted key that is wrong, `graph_server.threads`; empty where it is none.
        problem: what is wrong with it.
    """

    def __init__(self, key: str, problem: str, where: str = "") -> None:
        self.key, self.problem = key, problem
        super().__init__((f"{where}: " if where else "") + (f"{key} " if key else "") + problem)


def check_bounds(owner: object, key: str, least: float, *, above: bool = False, below: float = math.inf) -> None:
    """Checks that a field is finite, ≥ `least` (> `least` if `above`) and < `below`.

    Raises:
        ClusterError: it is not.
    """
    value: float | int = getattr(owner, key)
    if not (value > least or (value == least and not above)) or not value < below:
        bounds = f"{'>' if above else '≥'} {least:g}"
        more = f" and < {below:g}" if below < math.inf else "" if math.isfinite(value) else " and finite"
        raise ClusterError(key, f"must be {bounds}{more}, got {value}")
