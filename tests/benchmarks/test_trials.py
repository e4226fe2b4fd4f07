"""Which trials are tried, and what is counted of them."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness.trials import Tally, some
from hostile.base import Line


def test_all_are_tried_or_some_spread_over_them() -> None:
    assert list(some(3, 9, random.Random(0))) == [0, 1, 2]
    drawn = some(1000, 100, random.Random(0))
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == 100
    assert 300 < sum(one < 500 for one in drawn) * 10 < 700
    assert drawn == some(1000, 100, random.Random(0))


def test_what_went_wrong_is_printed_twice_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.add("survived", "a fault", "")
    for number in range(3):
        tally.add("lost", f"fault {number}", "gone")
    tally.add("crashed", "another", "it hung")
    assert tally.line("faults") == Line("faults", 5, 1, 3, 1)
    assert capsys.readouterr().out == "    fault 0: gone\n    fault 1: gone\n    another: it hung\n"
