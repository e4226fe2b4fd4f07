"""Policies for the rows that intervals read in asynchronous training, one per file.

`base` has the contracts. Each policy is a setting of the section `pipeline`; `choose` creates the configured ones. The
default is plain bounded staleness. `dorylax.pipeline.parameters.prediction` chooses the weights of an interval.
"""

from dorylax.pipeline.asynchrony.base import BlocksRead, Freshness, Reception
from dorylax.pipeline.asynchrony.choose import Asynchrony

__all__ = ["Asynchrony", "BlocksRead", "Freshness", "Reception"]
