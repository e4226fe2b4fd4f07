"""Which ingredients a configuration asks for."""

from __future__ import annotations

import dataclasses
from typing import final

from dorylax.pipeline.asynchrony.base import Freshness
from dorylax.pipeline.asynchrony.freshness import FreshShare
from dorylax.pipeline.config import PipelineConfig


@final
@dataclasses.dataclass(frozen=True)
class Asynchrony:
    """What graph servers do beyond the staleness bound.

    Attributes:
        freshness: what an interval waits for before it reads.
    """

    freshness: Freshness

    @classmethod
    def of(cls, config: PipelineConfig) -> Asynchrony:
        """What a configuration asks for."""
        return cls(FreshShare(config.freshness or 0.0))
