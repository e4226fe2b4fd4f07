"""Serverless functions (AWS Lambda): their speed and price."""

from __future__ import annotations

import math
from typing import Annotated, final

from pydantic import Field

from dorylax.cost.fields import NotNegative, part
from dorylax.cost.variation import Variation
from dorylax.settings.section import Positive

FULL_CPU_MB = 1769
"""Memory with which a function has one virtual CPU; its share is proportional (AWS's documentation, July 2026)."""


@final
@part
class Function:
    """A serverless function that runs tensor tasks.

    Attributes:
        memory_mb: Megabytes (2^20 bytes) of memory, 128 … 10240; the share of the processor is proportional.
        flops: Floating-point operations per second of one whole virtual CPU.
        network_bandwidth: Bytes per second, in and out together, without contention.
        overhead: Seconds of each call that are neither arithmetic nor data: the request and the response.
        price_per_gb_second: US dollars for 2^30 bytes of memory during a second.
        price_per_million_requests: US dollars for a million calls.
        variation: Spread of the durations of its calls.
        lone_bandwidth: With contention: bytes per second, in and out together, if no other function of its graph server
            transfers anything.
        crowding: With contention: each of n functions has the bandwidth `lone_bandwidth` · n ** -crowding (≥ 0).
        cold_start, keep_warm: With contention: seconds until a new function can work, and that an idle one is kept.

    Raises:
        ConfigError: A value is out of range.
    """

    memory_mb: Annotated[int, Field(ge=128, le=10240)]  # AWS's documentation, July 2026
    flops: Positive
    network_bandwidth: Positive
    overhead: Positive
    price_per_gb_second: NotNegative
    price_per_million_requests: NotNegative
    variation: Variation
    lone_bandwidth: Positive
    crowding: NotNegative
    cold_start: NotNegative
    keep_warm: NotNegative

    @property
    def virtual_cpus(self) -> float:
        """Share of a processor; 1 at `FULL_CPU_MB`."""
        return self.memory_mb / FULL_CPU_MB

    def bandwidth_among(self, calls: int) -> float:
        """Bytes per second of each of so many (≥ 1) concurrent transfers."""
        return float(self.lone_bandwidth * calls**-self.crowding)

    @staticmethod
    def billed_milliseconds(seconds: float) -> int:
        """Billed milliseconds of a call of this many seconds, rounded up."""
        # To a nanosecond first: 2.007 · 1000 is a hair more than 2007.
        return math.ceil(round(seconds * 1e3, 6))
