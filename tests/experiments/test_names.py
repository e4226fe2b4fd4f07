"""Short names of settings."""

from __future__ import annotations

from typing import Any

import pytest

from dorylax.experiments.names import short_name


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ({}, ""),
        ({"model.name": "gcn"}, "gcn"),
        ({"model.name": "gcn", "model.dropout": 0.1}, "gcn, dropout=0.1"),
        ({"data.size": None, "tensor.autotune": True}, "size=null, autotune=true"),
        ({"pipeline.mode": "pipe", "pipeline.staleness": None}, "pipe"),
        ({"pipeline.mode": "async", "pipeline.staleness": 0, "pipeline.update": "per_epoch"}, "async S=0 per_epoch"),
        # All that the mode is said with comes where the mode stands.
        ({"pipeline.staleness": 2, "model.name": "gat", "pipeline.mode": "async"}, "gat, async S=2"),
        ({"pipeline.staleness": 2}, "staleness=2"),
        ({"data.name": "cora", "data.size": None, "model.dropout": None}, "cora, dropout=null"),
        (
            {
                "pipeline.mode": "pipe",
                "pipeline.freshness": None,
                "pipeline.gradient_share": 1.0,
                "pipeline.servers": 2,
            },
            "pipe, servers=2",
        ),
        ({"pipeline.mode": "async", "pipeline.freshness": 0.8, "pipeline.predict_weights": "optimizer"}, "async"),
        (
            {
                "pipeline.mode": "async",
                "pipeline.freshness": 0,
                "pipeline.predict_weights": "none",
                "pipeline.smoothing": 0,
            },
            "async, freshness=0, predict_weights=none",
        ),
        ({"pipeline.freshness": 0.0}, "freshness=0.0"),
        (
            {"optimizer.name": "adam", "pipeline.partitioner": "ldg", "pipeline.update": "per_epoch"},
            "adam, ldg, per_epoch",
        ),
        ({"pipeline.partition": "parts/a"}, "partition=parts/a"),
    ],
)
def test_short_names(setting: dict[str, Any], name: str) -> None:
    assert short_name(setting) == name
