"""`rerun`: the weights survive a loss; replacements start, and the interrupted epoch is repeated."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.recovery.base import Decision, EpochEnded, Event, Fleet, Lost, replace_and_wait, stay


@final
class Rerun:
    """See `Policy`."""

    name = "rerun"
    keeps_shadows = False

    def decide(self, fleet: Fleet, event: Event) -> Decision:
        """See `Policy`."""
        if isinstance(event, Lost):
            again = "the unfinished epoch is repeated" if fleet.training else "no epoch was under way"
            return replace_and_wait(fleet, f"the driver has the newest weights, so {again} on replacements")
        if isinstance(event, EpochEnded) and fleet.leaving:
            return replace_and_wait(fleet, "hosts with a notice are replaced between two epochs, which loses nothing")
        return stay(fleet, "servers are replaced only after a loss, or between epochs after a notice")
