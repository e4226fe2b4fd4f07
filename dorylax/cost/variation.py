"""The spread of the durations of equal tasks."""

from __future__ import annotations

import functools
import hashlib
import math
import struct
from statistics import NormalDist
from typing import Annotated, final

from pydantic import Field

from dorylax.cost.fields import NotNegative, part
from dorylax.settings.section import Fraction

_quantile = NormalDist().inv_cdf
_CUT = 64 - 52  # of 64 bits, so that (bits + 1/2) / 2^52 is exact, and never 0 or 1
_UNITS = 2.0**52
_DIGEST = struct.Struct("<QQ")


@final
@part
class Variation:
    """A duration is its median times a lognormal factor, and some are stragglers on top.

    Attributes:
        sigma: Standard deviation of the factor's logarithm (≥ 0); the factor's median is 1.
        straggler_probability: Share of straggling tasks, in [0, 1).
        straggler_factor: Ratio of their duration to that of others (≥ 1).

    Raises:
        ConfigError: A value is out of range.
    """

    sigma: NotNegative
    straggler_probability: Fraction
    straggler_factor: Annotated[float, Field(ge=1)]

    def factor(self, seed: int, kind: str, key: tuple[int, ...]) -> float:
        """Factor (> 0) of a task's median duration: a pure function of its arguments, independent for different ones.

        Args:
            seed: Seed of the run.
            kind: Kind of the task, so that kinds may use equal keys.
            key: Identity of the task.
        """
        if not self.sigma and not self.straggler_probability:
            return 1.0
        text = f"{kind}:{seed}:{_numbers(len(key)) % key}"
        first, second = _DIGEST.unpack(hashlib.blake2b(text.encode(), digest_size=_DIGEST.size).digest())
        # Numbers in (0, 1) from 64 bits each.
        factor = math.exp(self.sigma * _quantile(((first >> _CUT) + 0.5) / _UNITS))
        if ((second >> _CUT) + 0.5) / _UNITS < self.straggler_probability:
            factor *= self.straggler_factor
        return factor


@functools.cache
def _numbers(count: int) -> str:
    """A format of so many whole numbers, which is faster than joining texts; simulations draw ten thousands a second."""
    return ",".join(["%d"] * count)
