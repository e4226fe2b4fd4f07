"""`restart`: every loss ends the run's servers; replacements reload the newest checkpoint. Most systems do this."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.recovery.base import Decision, EpochEnded, Event, Fleet, Lost, replace_and_wait, stay


@final
class Restart:
    """See `Policy`."""

    name = "restart"
    keeps_shadows = False

    def decide(self, fleet: Fleet, event: Event) -> Decision:
        """See `Policy`."""
        if isinstance(event, Lost):
            source = "the newest checkpoint" if fleet.checkpoint else "the start, because there is no checkpoint"
            return replace_and_wait(fleet, f"a loss restarts all servers from {source}", since="checkpoint")
        if isinstance(event, EpochEnded) and fleet.leaving:
            return replace_and_wait(fleet, "the notice left time to finish the epoch and save it")
        return stay(fleet, "servers are replaced only after a loss, or between epochs after a notice")
