"""The file is that of the data set in memory, is written in little memory, and is there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stored import contents

from dorylax.graph import datasets, splits, validate
from dorylax.graph.array_folder import size_on_disk
from dorylax.graph.datasets import DatasetError, block_model, communities
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit

_OPTIONS: list[dict[str, Any]] = [
    {"size": "tiny"},
    {"size": "tiny", "num_edges": 0},
    {"size": "tiny", "num_vertices": 9001, "num_edges": 123_456, "seed": 3, "split_seed": 4, "num_labelled": 700},
    {"size": "tiny", "num_vertices": 5000, "order": "community", "num_communities": 300, "homophily": 0.9},
    {"size": "papers100m", "num_vertices": 3000, "num_features": 5},
]


def same(one: Path, other: Path) -> None:
    """The same files, and in the manifests the same arrays and values."""
    assert sorted(os.listdir(one)) == sorted(os.listdir(other))
    for path in one.glob("*.npy"):
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name
    found, expected = (json.loads((path / "manifest.json").read_text()) for path in (one, other))
    for key in ("arrays", "values", "class_names"):
        assert found[key] == expected[key]


@pytest.mark.parametrize("options", _OPTIONS)
def test_the_file_is_that_of_the_data_set_in_memory(tmp_path: Path, options: dict[str, Any], monkeypatch) -> None:
    datasets.load("communities", **options).save(tmp_path / "whole")
    monkeypatch.setattr(splits, "_PIECE", 700)
    monkeypatch.setattr(block_model, "_EDGES_AT_A_TIME", 5000)
    datasets.generate("communities", tmp_path / "parts", **options)
    same(tmp_path / "parts", tmp_path / "whole")
    assert sorted(os.listdir(tmp_path)) == ["parts", "whole"]


def test_many_blocks_on_any_number_of_threads_are_the_same_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
    datasets.load("communities", size="tiny", num_edges=100_000).save(tmp_path / "whole")
    for threads in (1, 3):
        monkeypatch.setattr(communities, "cores", lambda threads=threads: threads)
        datasets.generate("communities", tmp_path / "parts", size="tiny", num_edges=100_000)
        same(tmp_path / "parts", tmp_path / "whole")


_IN_A_CHILD = """
import sys
from pathlib import Path
from dorylax.graph import datasets

shape = {"num_vertices": 2_000_000, "num_edges": 20_000_000, "num_features": 100}
datasets.generate("communities", sys.argv[1], memory=sys.argv[2], **shape)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def test_memory_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    run = subprocess.run(
        [sys.executable, "-c", _IN_A_CHILD, str(path), "600MiB"], capture_output=True, text=True, check=True
    )
    # Of 0.9 GB, beside an interpreter of 0.3 GB with JAX.
    assert size_on_disk(path) > 895_000_000
    assert int(run.stdout) < 600 * 1024


def test_what_was_killed_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    datasets.load("communities", size="tiny", seed=1).save(path)
    before = contents(path)
    child = subprocess.Popen([sys.executable, "-c", _IN_A_CHILD, str(path), "1GiB"])
    while not any(size_on_disk(one) > 10_000_000 for one in tmp_path.iterdir() if one != path):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    np.testing.assert_array_equal(contents(path)["indices"], before["indices"])
    assert len(os.listdir(tmp_path)) == 2
    datasets.generate("communities", path, size="tiny")
    assert os.listdir(tmp_path) == ["a"]
    assert datasets.load(path).graph.num_edges == 10_000


def test_progress_comes_to_its_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    datasets.generate("communities", tmp_path / "a", size="tiny", progress=lambda *one: seen.append(one))
    done, total, states = zip(*seen, strict=True)
    assert done[-1] == total[-1]
    assert list(done) == sorted(done)
    assert set(total) == {total[0]}
    assert list(dict.fromkeys(states)) == ["communities", "edges", "features", "labels"]
    assert total[0] < size_on_disk(tmp_path / "a") < total[0] + 8192


def test_too_little_memory_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(
        DatasetError, match=r"memory = 1\.0 GiB is too little to generate 111,059,956 vertices and 3,2"
    ) as told:
        datasets.generate("communities", tmp_path / "a", size="papers100m", memory="1GiB")
    assert "GiB would do" in str(told.value)
    monkeypatch.setattr(communities, "memory_limit", lambda: Limit(2**30, "cgroup"))
    with pytest.raises(DatasetError, match=r"memory = 1\.0 GiB is too little"):
        datasets.generate("communities", tmp_path / "a", size="papers100m")
    assert os.listdir(tmp_path) == []


def test_too_little_room_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(validate.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 990_000, 10_000))
    with pytest.raises(OSError, match=r"takes 0\.0 GiB, and its disk has 0\.0 GiB left"):
        datasets.generate("communities", tmp_path / "a", size="tiny")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "file", "options", "message"),
    [
        ("cora", "a", {}, "'cora' is not generated: only 'communities' is"),
        ("communities", "a.npz", {}, r"a\.npz ends in \.npz, and data sets are folders"),
        ("communities", "a", {"size": "huge"}, "communities has no size 'huge'"),
        ("communities", "a", {"seeds": 1}, "no option 'seeds'. Did you mean 'seed'"),
        ("communities", "a", {"memory": "4G"}, "memory: expected an amount of memory such as 4GiB, .*, got '4G'"),
    ],
)
def test_what_cannot_be(tmp_path: Path, name: str, file: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((DatasetError, GraphError), match=message):
        datasets.generate(name, tmp_path / file, **options)
    assert os.listdir(tmp_path) == []
