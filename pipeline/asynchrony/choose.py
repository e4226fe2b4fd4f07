"""Which ingredients a configuration asks for."""

from __future__ import annotations

from typing import NamedTuple

from dorylax.pipeline.asynchrony.base import Freshness, Reception
from dorylax.pipeline.asynchrony.freshness import FreshShare
from dorylax.pipeline.asynchrony.smoothing import ExponentialMean
from dorylax.pipeline.config import PipelineConfig


class Asynchrony(NamedTuple):
    """What graph servers do beyond the staleness bound.

    Attributes:
        freshness: what an interval waits for before it reads.
        reception: what becomes of rows that come from peers; None where they replace those before them.
    """

    freshness: Freshness
    reception: Reception | None

    @classmethod
    def of(cls, config: PipelineConfig) -> Asynchrony:
        """What a configuration asks for."""
        share = FreshShare(config.freshness or 0.0, local=config.freshness_of == "server")
        return cls(share, ExponentialMean(config.smoothing) if config.smoothing else None)
