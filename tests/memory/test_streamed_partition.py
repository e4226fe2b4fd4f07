"""Which partitions are made in memory, which over the disk, and which not at all."""

from __future__ import annotations

import dataclasses

import pytest

from dorylax.errors import InputError
from dorylax.graph.data_shape import DataShape
from dorylax.memory.streamed_partition import streams

GIB = 2**30
FRIENDSTER = DataShape(65_600_000, 3_600_000_000, 32, 50, features_in="mapped", graph_in="mapped")
OPTIONS = {"servers": 8, "method": "ldg", "ids": True}


def test_friendster() -> None:
    assert not streams(FRIENDSTER, **OPTIONS, memory=400 * GIB)
    assert streams(FRIENDSTER, **OPTIONS, memory=9 * GIB)
    with pytest.raises(InputError, match=r"more than the 2.6 GiB that --memory leaves for it: 65,600,000 vertices"):
        streams(FRIENDSTER, **OPTIONS, memory=3 * GIB)


@pytest.mark.parametrize(
    ("shape", "options", "told"),
    [
        (
            {"symmetric": False, "graph_in": "elsewhere"},
            {},
            "a directed graph, whose rows by target are made in memory",
        ),
        ({"features_in": "elsewhere"}, {}, "features that are not float32 rows of their own 7.8 GiB"),
        ({"num_edges": 2_000_000_000}, {}, "edge ids (--no-edge-ids leaves them out) 52.2 GiB"),
        ({}, {"method": "metis"}, "METIS (--method ldg takes less)"),
        ({}, {"servers": 1}, "a shard of 1 (more servers have smaller ones)"),
    ],
)
def test_what_does_not_stream_is_named(shape: dict, options: dict, told: str) -> None:
    with pytest.raises(InputError) as raised:
        streams(dataclasses.replace(FRIENDSTER, **shape), **OPTIONS | options, memory=9 * GIB)
    assert told in str(raised.value)


def test_without_edge_ids_nothing_is_held_for_them() -> None:
    shape = dataclasses.replace(FRIENDSTER, num_edges=2_000_000_000)
    assert streams(shape, **OPTIONS | {"ids": False}, memory=9 * GIB)


def test_what_is_generated_cannot_stay_on_disk() -> None:
    shape = dataclasses.replace(FRIENDSTER, origin="generated")
    with pytest.raises(InputError, match="only a folder can stay on disk"):
        streams(shape, **OPTIONS, memory=20 * GIB)
