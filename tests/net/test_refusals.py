"""All refusals are counted, and a flood of them is logged in few lines."""

from __future__ import annotations

import logging

from support.manual_clock import ManualClock

from dorylax.net.errors import Refusals


def test_a_flood_is_cut_short_and_told_of_later(caplog):
    clock = ManualClock()
    refusals = Refusals(burst=2, seconds=1.0, now=clock.now)
    with caplog.at_level(logging.WARNING, "dorylax.data"):
        for _ in range(5):
            refusals.add("graph 0", "nonsense")
        clock.time = 1.0
        refusals.add("graph 0", "more")
        refusals.add("graph 0", "still more")
    assert refusals.count == 7
    assert [record.getMessage() for record in caplog.records] == [
        "refused at graph 0: nonsense",
        "refused at graph 0: nonsense",
        "refused at graph 0: more (3 more before were not logged)",
        "refused at graph 0: still more",
    ]
