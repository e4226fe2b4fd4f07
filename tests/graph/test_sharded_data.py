"""Shards below s3:// are copied once, and only if they are what the summary says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.aws import cloud
from support.pipelines import messy_data

from dorylax.graph.mapped import ChangedFileError
from dorylax.graph.partition import lay_out, partition
from dorylax.graph.sharded_data import ShardedData
from dorylax.pipeline.shard_writing import write_shards
from dorylax.storage.choose import open_storage
from dorylax.storage.errors import StorageError


@pytest.fixture
def place() -> Iterator[str]:
    with cloud() as aws:
        aws.make_bucket()
        yield f"s3://{aws.bucket}/some/prefix"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


def test_shards_that_change_are_named(tmp_path: Path) -> None:
    data = messy_data(60, 240)
    write_shards(tmp_path, data, lay_out(data.graph, partition(data.graph, 2, method="random"), 2), ids=False)
    found = ShardedData.find(tmp_path)
    assert found is not None
    found.check_unchanged()
    with (tmp_path / "server-1/in_offsets.npy").open("ab") as file:
        file.write(b"more")
    with pytest.raises(
        ChangedFileError, match=r"server-1/in_offsets\.npy has changed since it was loaded \([0-9,]+ bytes then"
    ):
        found.check_unchanged()


def test_a_host_fetches_its_own_file_alone(place: str, tmp_path: Path, cached: Path) -> None:
    data, folder = messy_data(60, 240), tmp_path / "here"
    folder.mkdir()
    layout = lay_out(data.graph, partition(data.graph, 2, method="random"), 2)
    here = write_shards(folder, data, layout, ids=False)
    assert ShardedData.find(place) is None
    storage = open_storage(place)
    for path in folder.rglob("*.*"):
        storage.put_file(path.relative_to(folder).as_posix(), path)
    found = ShardedData.find(place)
    assert found is not None
    assert found.summary == here.summary
    shard, rows = found.shard(1)
    (copy,) = cached.iterdir()
    assert sorted(path.name for path in copy.iterdir()) == [name for name, *_ in here.summary.shards[1].files]
    times = {path: path.stat().st_mtime_ns for path in copy.iterdir()}
    found.shard(1)
    assert times == {path: path.stat().st_mtime_ns for path in copy.iterdir()}, "it is fetched once"
    next(copy.glob("*.npy")).write_bytes(b"damaged")
    found.shard(1)
    assert (shard.first, shard.last) == (30, 60)
    assert len(rows["rows features"]) == 30
    storage.put_file("server-0/in_offsets.npy", folder / "server-1/in_offsets.npy")
    with pytest.raises(StorageError, match=r"server-0/in_offsets\.npy"):
        found.shard(0)
