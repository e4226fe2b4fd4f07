"""Checks accept what is on the border and name the first thing that is not, across the spans they read in."""

from __future__ import annotations

import numpy as np
import pytest

from dorylax.graph import validate
from dorylax.graph.rows import SPAN
from dorylax.graph.validate import GraphError


def test_what_is_well_formed_passes():
    validate.check_num_vertices(0)
    validate.check_num_vertices(2**31 - 1)
    validate.check_range("ids", np.array([0, 4]), 5, "V")
    validate.check_range("ids", np.zeros(0, int), 0, "V")
    validate.check_offsets("offsets", np.array([0]), 0, "ids")
    validate.check_offsets("offsets", np.array([0, 0, 2, 2]), 2, "ids")
    validate.check_finite("x", np.zeros((3, 0)))
    validate.check_finite("x", np.zeros((0, 3)))
    validate.check_binary("y", np.array([[0, 1], [1, 1]]))
    validate.check_disjoint({"a": np.array([True, False]), "b": np.array([False, True])})
    validate.check_permutation("order", np.array([2, 0, 1]), 3)


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
