from __future__ import annotations

from dorylax.calibration.reference import TINY


def test_epochs_are_those_after_the_first() -> None:
    numbers = []
    for seconds, spans in TINY.epochs(2):
        assert 0 < sum(one.end - one.start for one in spans) < seconds
        numbers.append({one.epoch for one in spans if one.resource == "graph"})
    assert numbers == [{1}, {2}]
