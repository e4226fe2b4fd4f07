"""Checks accept what is on the border and name the first thing that is not, across the spans they read in."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dorylax.graph import validate
from dorylax.graph.rows import SPAN
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit


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


@pytest.mark.parametrize(
    ("source", "holder"),
    [
        ("machine", "this machine"),
        ("cgroup", "the control group of this process"),
        ("address space", "the address space of this process (ulimit -v)"),
    ],
)
def test_more_than_there_is(monkeypatch: pytest.MonkeyPatch, source: str, holder: str) -> None:
    monkeypatch.setattr(validate, "memory_limit", lambda: Limit(2**31, source))
    validate.check_room("x", 2**31)
    with pytest.raises(GraphError, match=f"^x takes 2,048.0 GiB of memory, and {re.escape(holder)} has 2.0 GiB$"):
        validate.check_room("x", 2**41)
    with pytest.raises(GraphError, match=r"^takes"):
        validate.check_room("", 2**41)
