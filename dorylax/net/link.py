"""A simulated link of a worker, with the latency and bandwidth of a cloud function's network."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable
from typing import final

MOST_SIGMA = 3
"""Largest sigma of latencies; one request in a hundred then takes a thousand times the median."""


@final
@dataclasses.dataclass(frozen=True)
class Link:
    """Properties of a worker's link.

    Attributes:
        latency_seconds: Median latency of a request; concurrent requests wait in parallel.
        bytes_per_second: Bandwidth of all gets and puts together; None: no limit.
        latency_sigma: Standard deviation of the logarithm of latencies, 0 … `MOST_SIGMA` (lognormal, as in
            `dorylax.cost.Variation`). 0: constant latency.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float | None = None
    latency_sigma: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.latency_seconds < math.inf:
            raise ValueError(f"latency_seconds must be finite and ≥ 0, got {self.latency_seconds}")
        if self.bytes_per_second is not None and not 0 < self.bytes_per_second < math.inf:
            raise ValueError(f"bytes_per_second must be finite and > 0, or None, got {self.bytes_per_second}")
        if not 0 <= self.latency_sigma <= MOST_SIGMA:
            raise ValueError(f"latency_sigma must be 0 … {MOST_SIGMA}, got {self.latency_sigma}")


@final
class SharedLink:
    """A link shared by the threads of one worker; bytes queue in order of arrival.

    Args:
        link: Properties of the link.
        now: Returns the time in seconds.
        sleep: Waits for a number of seconds.
        normal: Draws from the standard normal distribution.
    """

    def __init__(
        self,
        link: Link,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        normal: Callable[[], float] = random.gauss,
    ) -> None:
        self._link, self._now, self._sleep, self._normal = link, now, sleep, normal
        self._lock = threading.Lock()
        self._free_at = -math.inf

    def request(self) -> None:
        """Wait for the latency of a request."""
        if self._link.latency_seconds:
            self._sleep(self._link.latency_seconds * math.exp(self._link.latency_sigma * self._normal()))

    def carry(self, nbytes: int) -> None:
        """Wait until the bytes have passed the link."""
        if not nbytes or self._link.bytes_per_second is None:
            return
        with self._lock:
            now = self._now()
            self._free_at = max(now, self._free_at) + nbytes / self._link.bytes_per_second
            wait = self._free_at - now
        self._sleep(wait)
