"""A worker's link, slowed down: the network of a cloud function, felt on one machine."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable
from typing import final

MOST_SIGMA = 3
"""Of a link's latencies: one request in a hundred then waits a thousand times as long as the median."""


@final
@dataclasses.dataclass(frozen=True)
class Link:
    """How slow the link of one worker is.

    Attributes:
        latency_seconds: how long each request waits, in the median; requests wait side by side.
        bytes_per_second: of all that the worker gets and puts together; None: no limit.
        latency_sigma: standard deviation of the logarithm of what a request waits, 0 … `MOST_SIGMA`: lognormal, the
            usual shape of latencies, as in `dorylax.cost.Variation`. 0: all wait the same.
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

    def latency(self, normal: float) -> float:
        """How long a request waits, seconds, whose draw from the standard normal distribution is `normal`."""
        return self.latency_seconds * math.exp(self.latency_sigma * normal)

    def seconds(self, nbytes: int) -> float:
        """How long bytes occupy the link."""
        return nbytes / self.bytes_per_second if self.bytes_per_second is not None else 0.0


@final
class SharedLink:
    """A link that the threads of one worker share: bytes queue up, first come first served.

    Args:
        link: how slow it is.
        now: the time, seconds.
        sleep: waits for some seconds.
        normal: draws from the standard normal distribution.
    """

    def __init__(
        self,
        link: Link,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        normal: Callable[[], float] = random.gauss,
    ) -> None:
        self._link = link
        self._now = now
        self._sleep = sleep
        self._normal = normal
        self._lock = threading.Lock()
        self._free_at = -math.inf

    def request(self) -> None:
        """Waits for a request's latency."""
        if self._link.latency_seconds:
            self._sleep(self._link.latency(self._normal()))

    def carry(self, nbytes: int) -> None:
        """Waits until that many bytes have passed."""
        seconds = self._link.seconds(nbytes)
        if not seconds:
            return
        with self._lock:
            now = self._now()
            self._free_at = max(now, self._free_at) + seconds
            wait = self._free_at - now
        self._sleep(wait)
