from __future__ import annotations

from typing import Any

import pytest

from dorylax.program.rows.types import Free, GraphArray, Rows
from dorylax.program.tracing.traced import Input


@pytest.mark.parametrize(
    ("entry", "row_type", "of_data"),
    [
        (Input("param", "w"), Free(), False),
        (Input("seed", "seed"), Free(), False),
        (Input("loss_scale", "loss_scale"), Free(), False),
        (Input("constant", "constant 0"), Free(), True),
        (Input("count", "edges", "edge"), Free(), True),  # a number, though one of edges
        (Input("graph", "in_offsets"), GraphArray(), True),
        (Input("ids", "edge ids", "edge"), Rows("edge", 0), True),
        (Input("weights", "weights", "vertex"), Rows("vertex", 0), True),
    ],
)
def test_inputs_by_role(entry: Input, row_type: Any, of_data: bool) -> None:
    assert (entry.row_type, entry.of_data) == (row_type, of_data)
