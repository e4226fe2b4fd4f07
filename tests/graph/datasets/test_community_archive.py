"""The file is that of the data set in memory, is written in little memory, and is there whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dorylax.graph import datasets, random_order, room
from dorylax.graph.datasets import DatasetError, block_model, community_archive
from dorylax.machine import Limit

_OPTIONS: list[dict[str, Any]] = [
    {"size": "tiny"},
    {"size": "tiny", "num_edges": 0},
    {"size": "tiny", "num_vertices": 9001, "num_edges": 123_456, "seed": 3, "split_seed": 4, "num_labelled": 700},
    {"size": "tiny", "num_vertices": 5000, "order": "community", "num_communities": 300, "homophily": 0.9},
    {"size": "papers100m", "num_vertices": 3000, "num_features": 5},
]


@pytest.mark.parametrize("options", _OPTIONS)
def test_the_file_is_that_of_the_data_set_in_memory(tmp_path: Path, options: dict[str, Any], monkeypatch) -> None:
    datasets.load("communities", **options).save_npz(tmp_path / "whole.npz")
    monkeypatch.setattr(random_order, "_PIECE", 700)
    monkeypatch.setattr(block_model, "_EDGES_AT_A_TIME", 5000)
    datasets.generate("communities", tmp_path / "parts.npz", **options)
    assert (tmp_path / "parts.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["parts.npz", "whole.npz"]


def test_many_blocks_on_any_number_of_threads_are_the_same_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
    datasets.load("communities", size="tiny", num_edges=100_000).save_npz(tmp_path / "whole.npz")
    for threads in (1, 3):
        monkeypatch.setattr(community_archive, "cores", lambda threads=threads: threads)
        datasets.generate("communities", tmp_path / "parts.npz", size="tiny", num_edges=100_000)
        assert (tmp_path / "parts.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


_IN_A_CHILD = """
import sys
from pathlib import Path
from dorylax.graph import datasets

shape = {"num_vertices": 2_000_000, "num_edges": 20_000_000, "num_features": 100}
datasets.generate("communities", sys.argv[1], memory=sys.argv[2], **shape)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def test_memory_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    run = subprocess.run(
        [sys.executable, "-c", _IN_A_CHILD, str(path), "600MiB"], capture_output=True, text=True, check=True
    )
    # Of 0.9 GB, beside an interpreter of 0.3 GB with JAX.
    assert path.stat().st_size > 895_000_000
    assert int(run.stdout) < 600 * 1024


def test_what_was_killed_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"what was there before")
    child = subprocess.Popen([sys.executable, "-c", _IN_A_CHILD, str(path), "1GiB"])
    while not any(one.stat().st_size > 10_000_000 for one in tmp_path.iterdir() if one != path):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert path.read_bytes() == b"what was there before"
    assert len(os.listdir(tmp_path)) == 2
    datasets.generate("communities", path, size="tiny")
    assert os.listdir(tmp_path) == ["a.npz"]
    assert datasets.load(path).graph.num_edges == 10_000


def test_progress_comes_to_its_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    datasets.generate("communities", tmp_path / "a.npz", size="tiny", progress=lambda *one: seen.append(one))
    done, total, states = zip(*seen, strict=True)
    assert done[-1] == total[-1]
    assert list(done) == sorted(done)
    assert set(total) == {total[0]}
    assert list(dict.fromkeys(states)) == ["communities", "edges", "features", "labels"]
    assert total[0] < (tmp_path / "a.npz").stat().st_size < total[0] + 8192


def test_too_little_memory_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(
        DatasetError, match=r"memory = 1\.0 GiB is too little to generate 111,059,956 vertices and 3,2"
    ) as told:
        datasets.generate("communities", tmp_path / "a.npz", size="papers100m", memory="1GiB")
    assert "GiB would do" in str(told.value)
    monkeypatch.setattr(community_archive, "memory_limit", lambda: Limit(2**30, "cgroup"))
    with pytest.raises(DatasetError, match=r"memory = 1\.0 GiB is too little"):
        datasets.generate("communities", tmp_path / "a.npz", size="papers100m")
    assert os.listdir(tmp_path) == []


def test_too_little_room_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 990_000, 10_000))
    with pytest.raises(OSError, match=r"takes 0\.0 GiB, and its disk has 0\.0 GiB left"):
        datasets.generate("communities", tmp_path / "a.npz", size="tiny")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "file", "options", "message"),
    [
        ("cora", "a.npz", {}, "'cora' is not generated: only 'communities' is"),
        ("communities", "a.npy", {}, r"a\.npy does not end in \.npz"),
        ("communities", "a.npz", {"size": "huge"}, "communities has no size 'huge'"),
        ("communities", "a.npz", {"seeds": 1}, "no option 'seeds'. Did you mean 'seed'"),
        ("communities", "a.npz", {"memory": "4G"}, "memory: expected an amount of memory such as 4GiB, .*, got '4G'"),
    ],
)
def test_what_cannot_be(tmp_path: Path, name: str, file: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.generate(name, tmp_path / file, **options)
    with pytest.raises(FileNotFoundError):
        datasets.generate("communities", tmp_path / "no" / "a.npz", size="tiny")
    assert os.listdir(tmp_path) == []
