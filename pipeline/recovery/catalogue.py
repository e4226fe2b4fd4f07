"""The recovery policies by name. Apart from `base`, so that a policy imports the contract without the others."""

from __future__ import annotations

from dorylax.pipeline.recovery.base import Policy
from dorylax.pipeline.recovery.reroute import Reroute
from dorylax.pipeline.recovery.rerun import Rerun
from dorylax.pipeline.recovery.restart import Restart
from dorylax.pipeline.recovery.shadow import Shadow

POLICIES: dict[str, Policy] = {policy.name: policy for policy in (Restart(), Rerun(), Reroute(), Shadow())}
"""By the value of `pipeline.recovery`."""
