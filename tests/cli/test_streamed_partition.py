"""`dorylax partition` over an archive on disk writes the same files as in memory, and chooses between the two."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dorylax.cli import options, streamed_partition
from dorylax.errors import InputError
from dorylax.graph.data_shape import DataShape
from dorylax.graph.datasets import load
from dorylax.graph.partition.locality import communities
from dorylax.graph.sharded_data import ShardedData
from dorylax.graph.stored import open_arrays
from dorylax.machine import Limit

OPTIONS = ("--servers", "3", "--intervals", "2", "--widths", "4", "--json")
GIB = 2**30
FRIENDSTER = DataShape(65_600_000, 3_600_000_000, 32, 50, features_in="mapped", graph_in="mapped")
CHOICE = {"servers": 8, "method": "ldg", "ids": True}


@pytest.fixture(scope="module", autouse=True)
def small_arrays_are_mapped() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dorylax.graph.stored._LARGE", 1 << 16)
        yield


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "given"
    load("communities", size="small", num_features=7).save(path)
    return path


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_partition, "streams", lambda *_, **__: True)
    # Other communities make another layout: what is compared is what is made of one.
    monkeypatch.setattr(streamed_partition, "communities_within", lambda rows, *_: _communities(rows))


def _communities(rows) -> np.ndarray:
    from dorylax.graph import Graph

    return communities(Graph(rows.offsets.read(0, rows.num_vertices + 1), rows.neighbours.read(0, rows.num_edges)))


@pytest.mark.parametrize(
    "how",
    [
        ("ldg", "--edge-ids"),
        ("ldg", "--no-edge-ids"),
        ("range", "--edge-ids"),
        ("random", "--edge-ids"),
        ("metis", "--edge-ids"),
    ],
)
def test_the_same_shards(dorylax, given: Path, tmp_path: Path, request, how: tuple[str, str]) -> None:
    method, ids = how
    contents = []
    for way in ("memory", "disk"):
        if way == "disk":
            request.getfixturevalue("on_disk")
        words = ("partition", "--data", str(given), "--method", method, ids, "--out", str(tmp_path / way), *OPTIONS)
        code, out, err = dorylax(*words)
        assert (code, err) == (0, "")
        contents.append(json.loads(out))
        assert contents[-1].pop("streamed") == (way == "disk")
        del contents[-1]["folder"]
    assert contents[0] == contents[1]
    assert {path.name for path in tmp_path.iterdir()} == {"memory", "disk"}
    files = [
        {path.relative_to(tmp_path / way): path for path in (tmp_path / way).rglob("*.*")} for way in ("memory", "disk")
    ]
    assert files[0].keys() == files[1].keys()
    for name, path in files[0].items():
        if name.name != "shards.json":
            assert path.read_bytes() == files[1][name].read_bytes(), name
    one, other = (ShardedData.find(tmp_path / way) for way in ("memory", "disk"))
    assert one is not None
    assert other is not None
    assert one.summary == other.summary


@pytest.mark.usefixtures("on_disk")
def test_without_out_nothing_is_written(dorylax, given: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert dorylax("partition", "--data", str(given), "--method", "ldg", *OPTIONS).code == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_too_large_for_both_says_why(dorylax, given: Path, tmp_path: Path) -> None:
    words = ("partition", "--data", str(given), "--out", str(tmp_path / "parts"), *OPTIONS, "--memory", "1MiB")
    code, out, err = dorylax(*words)
    assert (code, out) == (2, "")
    assert "a partition in a stream takes more than the" in err
    assert "METIS (--method ldg takes less)" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("has", "code"), [(1 << 20, 2), (1 << 34, 0)])
def test_what_is_too_large_for_all_there_is_is_refused_unasked(
    dorylax, given: Path, monkeypatch: pytest.MonkeyPatch, has: int, code: int
) -> None:
    """The default is a share of it: what that alone refuses is partitioned in memory."""
    monkeypatch.setattr(options, "_SHARE", 1e-9)
    for module in (options, streamed_partition):
        monkeypatch.setattr(module, "memory_limit", lambda: Limit(has, "machine"))
    found = dorylax("partition", "--data", str(given), *OPTIONS)
    assert found.code == code
    assert ("METIS (--method ldg takes less)" in found.err) == (code == 2)
    if code == 0:
        assert not json.loads(found.out)["streamed"]


def test_the_archive_is_mapped(given: Path) -> None:
    with open_arrays(given) as archive:
        assert archive.maps("indices")
        assert archive.maps("features")


def test_friendster() -> None:
    assert not streamed_partition.streams(FRIENDSTER, **CHOICE, memory=400 * GIB)
    assert streamed_partition.streams(FRIENDSTER, **CHOICE, memory=9 * GIB)
    with pytest.raises(InputError, match=r"more than the 2.6 GiB that --memory leaves for it: 65,600,000 vertices"):
        streamed_partition.streams(FRIENDSTER, **CHOICE, memory=3 * GIB)


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
        streamed_partition.streams(dataclasses.replace(FRIENDSTER, **shape), **CHOICE | options, memory=9 * GIB)
    assert told in str(raised.value)


def test_without_edge_ids_nothing_is_held_for_them() -> None:
    shape = dataclasses.replace(FRIENDSTER, num_edges=2_000_000_000)
    assert streamed_partition.streams(shape, **CHOICE | {"ids": False}, memory=9 * GIB)


def test_what_is_generated_cannot_stay_on_disk() -> None:
    shape = dataclasses.replace(FRIENDSTER, origin="generated")
    with pytest.raises(InputError, match="only a folder can stay on disk"):
        streamed_partition.streams(shape, **CHOICE, memory=20 * GIB)
