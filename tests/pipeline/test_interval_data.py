"""What intervals hold of the data: padded where epochs read it, and no copy of what is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flax import nnx
from support.pipelines import messy_data

from dorylax.graph.cutting import Cutting
from dorylax.graph.partition import lay_out, partition
from dorylax.jax_internals import Var
from dorylax.layers import registry
from dorylax.pipeline.interval_data import interval_data, own_rows, stored_values
from dorylax.pipeline.prepare import Prepared, prepare
from dorylax.pipeline.stages import StageSizes
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.passes import PASSES
from dorylax.program.tracing.spec import DataSpec

DATA = messy_data(60, 240)
SIZE = 12


def intervals_of(prepared: Prepared) -> tuple[np.ndarray, list[dict[Var, Any]]]:
    """The features of the first of two servers, and what its intervals hold, of 10 rows each."""
    layout = lay_out(DATA.graph, partition(DATA.graph, 2, method="random"), 3)
    cutting = Cutting(DATA.graph, layout)
    shard = cutting.shard(0)
    rows = own_rows(DATA, cutting, shard, layout.order, ids=True)
    values = stored_values(prepared, rows, shard, 3)
    return rows["rows features"], interval_data(prepared, values, shard, StageSizes(SIZE, 50))


@pytest.mark.parametrize(("dropout", "length"), [(0.0, 10), (0.5, SIZE)])
def test_features_are_copied_where_epochs_read_them(dropout: float, length: int) -> None:
    options = {"dropout": dropout, "hidden_features": 4 * DATA.num_features}  # wide: sums of neighbours come first
    model = registry.build("gcn", DATA.num_features, DATA.num_classes, options, nnx.Rngs(params=0, dropout=0))
    prepared = prepare(take_apart(model), DataSpec.of(DATA), PASSES)
    features, found = intervals_of(prepared)
    traced = prepared.plan.program.traced
    (var,) = (v for v, entry in zip(traced.step.jaxpr.invars, traced.inputs, strict=True) if entry.role == "rows")
    for number, interval in enumerate(found):
        held = interval[var]
        np.testing.assert_array_equal(held[:10], features[10 * number : 10 * number + 10])
        assert len(held) == length
        assert np.shares_memory(held, features) == (length == 10)


def test_further_inputs_are_there_where_they_are_asked_for() -> None:
    layout = lay_out(DATA.graph, partition(DATA.graph, 2, method="random"), 3)
    cutting = Cutting(DATA.graph, layout)
    shard = cutting.shard(1)
    assert "ids edge ids" not in own_rows(DATA, cutting, shard, layout.order, ids=False)
