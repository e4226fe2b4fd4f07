"""What an interval reads in asynchronous training: an ingredient a file.

`base` has the contracts. Each ingredient is a setting of the section `pipeline`; `choose` makes those that a configuration
asks for. What is not asked for is the plain way: whatever there is, as the staleness bound allows it. With which weights an
interval computes is said by `dorylax.pipeline.parameters.prediction`.
"""

from dorylax.pipeline.asynchrony.base import BlocksRead, Freshness, Reception
from dorylax.pipeline.asynchrony.choose import Asynchrony

__all__ = ["Asynchrony", "BlocksRead", "Freshness", "Reception"]
