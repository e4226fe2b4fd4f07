"""Update policies: what becomes an optimizer step, and when."""

from dorylax.pipeline.parameters.policy.base import DueStep, Late, UpdatePolicy
from dorylax.pipeline.parameters.policy.late_gradients import LateGradients
from dorylax.pipeline.parameters.policy.per_epoch import PerEpoch
from dorylax.pipeline.parameters.policy.per_interval import PerInterval
from dorylax.pipeline.parameters.policy.switching import Switching

__all__ = ["DueStep", "Late", "LateGradients", "PerEpoch", "PerInterval", "Switching", "UpdatePolicy"]
