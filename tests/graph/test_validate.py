"""Checks accept what is on the border and name the first thing that is not, across the spans they read in."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import validate
from dorylax.graph.rows import SPAN
from dorylax.graph.validate import GraphError


@pytest.mark.parametrize("position", [0, SPAN - 1, SPAN, 2 * SPAN + 5])
def test_the_first_fault_is_named_wherever_it_lies(position):
    ids = np.zeros(2 * SPAN + 6, np.int32)
    ids[position] = 3
    ids[-1] = 4 if position < len(ids) - 1 else 3
    with pytest.raises(GraphError, match=rf"ids\[{position}\] = 3 is out of range: must be ≥ 0 and < V = 3"):
        validate.check_range("ids", ids, 3, "V")
    width = 4
    matrix = np.zeros((len(ids) // width + 1, width), np.float32)
    matrix.flat[position] = np.nan
    with pytest.raises(GraphError, match=rf"x\[{position // width}, {position % width}\] = nan is not finite"):
        validate.check_finite("x", matrix)
    with pytest.raises(GraphError, match=rf"x\[{position // width}, {position % width}\] = nan is neither 0 nor 1"):
        validate.check_binary("x", matrix)
