from __future__ import annotations

from itertools import count

import pytest

from dorylax.calibration import steps
from dorylax.calibration.steps import quantity, repeated, summary


def test_the_first_does_not_count() -> None:
    values = count(1.0)
    found = repeated("memory", lambda: next(values), 0.0, threads=3)
    assert found == {("memory", (("threads", 3),)): [2.0, 3.0, 4.0, 5.0, 6.0]}
    assert steps.LEAST == 5


def test_it_ends_in_time_or_with_the_most_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST", 7)
    assert repeated("memory", lambda: 1.0, 1e9) == {quantity("memory"): [1.0] * 7}


def test_quartiles() -> None:
    found = summary("task", [5.0, 1.0, 2.0, 4.0, 3.0], part="inside")
    assert (found.low, found.median, found.high, found.spread) == (2.0, 3.0, 4.0, pytest.approx(2 / 3))
