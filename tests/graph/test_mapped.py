"""Pages of memory-mapped arrays, and that nothing but their residence changes."""

from __future__ import annotations

import mmap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dorylax
from dorylax.graph.array_folder import write_arrays
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import mapping_of, release, resident_within
from dorylax.graph.stored import open_arrays
from dorylax.trainer import vertex_order

_SIZE = 1 << 22  # float32: 16 MiB
needs_proc = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.arange(_SIZE, dtype=np.float32).tofile(tmp_path / "numbers")
    return tmp_path / "numbers"


def _resident(path: Path) -> int:
    """Bytes of a file's mappings that are resident in this process."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = str(path) in line
        elif inside and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@needs_proc
def test_pages_of_an_array_and_of_views_of_it_are_given_back(file: Path) -> None:
    array = np.memmap(file, np.float32, "r", shape=(_SIZE,))
    expected = float(array.sum())
    assert _resident(file) == 4 * _SIZE
    release(array[_SIZE // 2 :].reshape(-1, 64))
    assert _resident(file) == 2 * _SIZE
    release(np.asarray(array).view(np.uint32)[::-1])
    assert _resident(file) == 0
    assert float(array.sum()) == expected


@needs_proc
def test_an_array_that_begins_inside_a_page(file: Path) -> None:
    array = np.memmap(file, np.float32, "r", offset=4 * 5000, shape=(3000,))
    expected = array.copy()
    release(array)
    assert _resident(file) == 0
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_what_was_written_stays(file: Path, mode: str) -> None:
    """Private pages would be lost."""
    array = np.memmap(file, np.float32, mode, shape=(_SIZE,))
    array[7] = -1
    release(array, array[:100])
    assert array[7] == -1


def test_other_arrays_are_left_alone(file: Path) -> None:
    array = np.fromfile(file, np.float32)
    expected = array.copy()
    release(array, array[5:], np.empty(0), None)
    np.testing.assert_array_equal(array, expected)
    assert mapping_of(array) is None
    assert isinstance(mapping_of(np.memmap(file, np.float32, "r")[3:][::2]), mmap.mmap)


@needs_proc
def test_of_a_mapped_data_set_only_the_reordered_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    sizes = {"num_vertices": 20_000, "num_edges": 2_000_000, "num_features": 64}
    dorylax.load("communities", **sizes).save(path)
    data = Dataset.from_folder(path)
    features, rows = data.features.nbytes, data.graph.incoming.neighbours.nbytes
    while_ordering = []

    def order(graph: dorylax.Graph) -> np.ndarray:
        while_ordering.append(_resident(path))
        return np.arange(graph.num_vertices)[::-1]

    monkeypatch.setattr("dorylax.graph.partition.cached_locality_order", order)
    assert _resident(path) >= features + rows  # loading has checked them
    moved, _ = vertex_order.in_order(data, "community")
    assert while_ordering[0] <= rows + 2**16
    assert _resident(path) == 0
    np.testing.assert_array_equal(moved.features[::-1], data.features)


@needs_proc
def test_fewer_pages_than_asked_for_stay_while_others_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_arrays(path, lambda writer: writer.add("a", np.arange(1 << 24, dtype=np.float32)))  # 64 MiB
    with open_arrays(path) as archive:
        array = archive.fetch("a")
    peak, total = 0, 0.0
    with resident_within(8 << 20):
        for block in np.split(array, 64):
            total += float(block.sum(dtype=np.float64))
            time.sleep(0.02)
            peak = max(peak, _resident(path))
    assert total == (1 << 24) * ((1 << 24) - 1) / 2
    assert peak <= 16 << 20
    array.sum()
    assert _resident(path) == pytest.approx(64 << 20, rel=0.01)  # nobody takes them any more
    assert not any(thread.name == "dorylax-resident" for thread in threading.enumerate())
