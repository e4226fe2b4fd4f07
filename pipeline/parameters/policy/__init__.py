"""Update policies: what becomes an optimizer step, and when."""

from dorylax.pipeline.parameters.policy.base import DueStep, UpdatePolicy
from dorylax.pipeline.parameters.policy.per_epoch import PerEpoch
from dorylax.pipeline.parameters.policy.per_interval import PerInterval
from dorylax.pipeline.parameters.policy.switching import Switching

__all__ = ["DueStep", "PerEpoch", "PerInterval", "Switching", "UpdatePolicy"]
