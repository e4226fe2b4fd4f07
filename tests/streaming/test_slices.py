"""Slices cut a unit so that its rows and edges stay in a cache, and do not know how many threads there are."""

from __future__ import annotations

import numpy as np

from dorylax.streaming import slices
from dorylax.streaming.slices import Slices, slices_for
from dorylax.streaming.units import Units


def test_slices_are_of_one_length() -> None:
    units = Units(np.arange(0, 10 * 75_000 + 1, 75_000), np.arange(0, 10 * 4_000_000 + 1, 4_000_000))
    found = slices_for(units, 200, 0)
    number = -(-75_000 // found.rows)
    assert 75_000 <= number * found.rows < 75_000 + 16 * number, "hardly anything is padded"
    assert found.rows <= slices.ENTRIES * 75_000 // 4_000_000 + 16
    by_edge = slices_for(units, 200, 4)
    assert by_edge.rows < found.rows
    assert slices_for(units, 200, 64).rows < by_edge.rows


def test_small_units_are_one_slice() -> None:
    assert slices_for(Units(np.array([0, 3, 6]), np.array([0, 5, 7])), 4, 4) == Slices(3, 5)
