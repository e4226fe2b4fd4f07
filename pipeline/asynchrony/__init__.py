"""What an interval reads in asynchronous training, and with which weights: an ingredient a file.

`base` has the contracts. Each ingredient is a setting of the section `pipeline`; `choose` makes those that a configuration
asks for. What is not asked for is the plain way: whatever there is, as the staleness bound allows it.
"""

from dorylax.pipeline.asynchrony.base import BlocksRead, Freshness
from dorylax.pipeline.asynchrony.choose import Asynchrony

__all__ = ["Asynchrony", "BlocksRead", "Freshness"]
