"""Creates the policies of a configuration."""

from __future__ import annotations

from typing import NamedTuple

from dorylax.pipeline.asynchrony.base import Freshness, Reception
from dorylax.pipeline.asynchrony.freshness import FreshShare
from dorylax.pipeline.asynchrony.smoothing import ExponentialMean
from dorylax.pipeline.config import PipelineConfig


class Asynchrony(NamedTuple):
    """Policies of graph servers in addition to the staleness bound.

    Attributes:
        freshness: Condition before an interval reads.
        reception: Weights of received rows; None: they replace the previous rows.
    """

    freshness: Freshness
    reception: Reception | None

    @classmethod
    def of(cls, config: PipelineConfig) -> Asynchrony:
        """Return the policies of a configuration."""
        share = FreshShare(config.freshness or 0.0, local=config.freshness_of == "server")
        return cls(share, ExponentialMean(config.smoothing) if config.smoothing else None)
