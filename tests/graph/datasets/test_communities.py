"""`communities`: graph, features and labels, and the folder that is written in little memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import ends

from dorylax.graph import datasets, splits, validate
from dorylax.graph.array_folder import size_on_disk
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import DatasetError, block_model, communities
from dorylax.graph.datasets.block_model import BlockModel, power_law_propensities
from dorylax.graph.graph import Graph
from dorylax.graph.validate import GraphError
from dorylax.machine import Limit


def model(
    num_vertices: int = 3000, num_edges: int = 60_000, num_classes: int = 5, homophily: float = 0.6
) -> BlockModel:
    communities = (np.random.default_rng(1).permutation(num_vertices) % num_classes).astype(np.int32)
    return BlockModel(communities, power_law_propensities(num_vertices, 2.5, 3), num_edges, homophily, 3)


@pytest.fixture(params=["one block", "many blocks"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    if request.param == "many blocks":
        monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
        assert model()._num_blocks > 5
    return model().sample()


def test_is_what_it_says_of_itself(graph: Graph) -> None:
    sources, targets = ends(graph)
    assert (graph.num_vertices, graph.num_edges, graph.symmetric, graph.self_loops) == (3000, 60_000, True, "none")
    assert (graph.incoming.offsets.dtype, sources.dtype) == (np.int64, np.int32)
    assert graph.incoming.offsets[[0, -1]].tolist() == [0, 60_000]
    assert (sources != targets).all()
    key, reverse = targets.astype(np.int64) << 32 | sources, sources.astype(np.int64) << 32 | targets
    assert (np.diff(key) >= 0).all()  # rows sorted by source
    assert np.array_equal(np.sort(reverse), key)  # symmetric with multiplicities


def test_homophily_and_degrees_are_as_asked(graph: Graph) -> None:
    sources, targets = ends(graph)
    made = model()
    inside = (made.communities[sources] == made.communities[targets]).mean()
    assert abs(inside - 0.6) < 0.01
    degrees = np.diff(graph.incoming.offsets)
    expected = made.propensities * (60_000 / made.propensities.sum())
    spread = (degrees - expected) / np.sqrt(expected)
    assert abs(spread.mean()) < 0.1
    # Poisson would be 1; loops are excluded and the edges of a tile are fixed, so a little less
    assert 0.8 < spread.var() < 1.1


def test_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_model, "_EDGES_PER_TILE", 1000)
    graph = model().sample()
    found = hashlib.sha256(graph.incoming.offsets.tobytes() + graph.incoming.neighbours.tobytes()).hexdigest()
    assert found == GOLDEN_GRAPH


def test_homophily_one_keeps_all_edges_inside_and_chance_level_ignores_communities() -> None:
    made = model(homophily=1.0)
    sources, targets = ends(made.sample())
    assert (made.communities[sources] == made.communities[targets]).all()
    made = model(homophily=0.2)
    sources, targets = ends(made.sample())
    assert abs((made.communities[sources] == made.communities[targets]).mean() - 0.2) < 0.02


@pytest.mark.parametrize("num_vertices", [2, 3, 7])
def test_the_smallest_graphs(num_vertices: int) -> None:
    # Two communities of one vertex each have no pair inside: all edges then go by chance.
    graph = model(num_vertices, num_edges=20, num_classes=2).sample()
    sources, targets = ends(graph)
    assert graph.num_edges == 20
    assert (sources != targets).all()
    assert model(num_vertices, num_edges=0, num_classes=2).sample().num_edges == 0


def test_propensities_follow_the_power_law() -> None:
    theta = power_law_propensities(200_000, 2.5, 0)
    assert (theta.min(), theta.dtype) == (4, np.uint16)
    assert 300 < theta.max() <= 400
    # P(θ > t) = (t/4)^-1.5, less the cut at ratio 100; between integers because of rounding
    for t in (8.5, 16.5, 40.5):
        assert abs((theta > t).mean() / ((t / 4) ** -1.5) - 1) < 0.03


GOLDEN_GRAPH = "df665b7bff4d98b577f4ec2bd034407cec09d294c4b5fb92bcd751ac1af5720c"


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_has_the_numbers_of_its_size(size: str) -> None:
    data = datasets.load("communities", size=size)
    graph = data.graph
    found = datasets.Size(graph.num_vertices, graph.num_edges, data.num_features, data.num_classes)
    assert found == communities.SIZES[size]
    assert (data.name, data.multilabel, graph.symmetric) == ("communities", False, True)
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == tuple(
        round(part * graph.num_vertices) for part in (0.6, 0.2, 0.2)
    )


def digest(data: Dataset) -> str:
    arrays = (data.graph.incoming.offsets, data.graph.incoming.neighbours, data.features, data.labels)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def test_is_the_same_everywhere_for_a_seed() -> None:
    assert digest(datasets.load("communities", size="tiny")) == GOLDEN_TINY
    assert digest(datasets.load("communities", size="tiny", seed=0)) == GOLDEN_TINY
    assert digest(datasets.load("communities", size="tiny", seed=1)) != GOLDEN_TINY


def test_split_seed_changes_nothing_but_the_split() -> None:
    one, two = (datasets.load("communities", size="tiny", split_seed=seed) for seed in (0, 1))
    assert digest(one) == digest(two)
    assert not np.array_equal(one.train_mask, two.train_mask)


def test_options_override_single_numbers() -> None:
    data = datasets.load(
        "communities", size="tiny", num_vertices=500, num_edges=3000, num_features=7, num_classes=3, homophily=1.0
    )
    assert (data.graph.num_vertices, data.graph.num_edges, data.num_features, data.num_classes) == (500, 3000, 7, 3)
    assert datasets.load("communities", size="tiny", num_vertices=500).graph.num_edges == 5000  # its average degree
    assert datasets.load("communities", size="tiny", average_degree=3.5).graph.num_edges == 3500


def test_label_noise_and_signal() -> None:
    clean = datasets.load("communities", size="small", label_noise=0.0, homophily=1.0)
    noisy = datasets.load("communities", size="small", label_noise=0.5, homophily=1.0)
    assert abs((clean.labels != noisy.labels).mean() - 0.5 * 9 / 10) < 0.02
    assert np.array_equal(clean.features, noisy.features)
    centroids = np.stack([clean.features[clean.labels == c].mean(0) for c in range(10)])
    assert np.allclose(np.linalg.norm(centroids, axis=1), 1.5, atol=0.1)
    assert np.allclose((clean.features - centroids[clean.labels]).var(0), 1, atol=0.05)


def test_communities_one_after_another_and_more_of_them_than_classes() -> None:
    data = datasets.load(
        "communities", size="small", order="community", num_communities=40, homophily=0.8, label_noise=0.0
    )
    assert data.labels.tolist() == (np.arange(20_000) // 500 % 10).tolist()
    apart = abs(np.subtract(*ends(data.graph)))
    assert 0.79 < (apart < 500).mean() < 0.83  # those inside, and a few by chance
    assert data.graph.num_edges == 400_000
    assert not np.array_equal(data.train_mask[:500], data.train_mask[500:1000])


def test_labelled_vertices() -> None:
    data = datasets.load("communities", size="tiny", num_labelled=200)
    every = datasets.load("communities", size="tiny")
    assert (data.labels >= 0).sum() == 200
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (120, 40, 40)
    assert np.array_equal(data.features, every.features)
    assert communities.Options(size="papers100m").labelled == 1_546_782
    part = datasets.load("communities", size="papers100m", num_vertices=100_000, num_features=2)
    assert (part.labels >= 0).sum() == 1393  # as many in a hundred as there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "communities.size must be one of tiny, small, .*, got 'huge'"),
        ({"size": "redit-small"}, "did you mean reddit-small?"),
        ({"num_vertexes": 5}, "unknown key 'communities.num_vertexes': did you mean communities.num_vertices?"),
        ({"num_vertices": 1}, "communities.num_vertices must be ≥ 2 and < 2147483648, got 1"),
        ({"num_vertices": 2**31}, "communities.num_vertices must be .* < 2147483648"),
        ({"num_edges": 11}, "communities.num_edges must be even: each undirected edge counts twice, got 11"),
        ({"num_edges": 10, "average_degree": 2.0}, "not both"),
        ({"average_degree": -1.0}, "communities.average_degree must be ≥ 0, got -1"),
        ({"average_degree": float("inf")}, "communities.average_degree must be finite, got inf"),
        ({"num_classes": 2000}, "communities.num_classes must be at most num_vertices, 1000, got 2000"),
        ({"num_classes": True}, "communities.num_classes must be a whole number ≥ 1, got true"),
        (
            {"num_communities": 3},
            "communities.num_communities must be from num_classes, 4, to num_vertices, 1000, got 3",
        ),
        ({"num_communities": 1001}, "communities.num_communities must be from .* to num_vertices, 1000, got 1001"),
        ({"num_labelled": 0}, "communities.num_labelled must be ≥ 1, got 0"),
        ({"num_labelled": 1001}, "communities.num_labelled must be at most num_vertices, 1000, got 1001"),
        ({"order": "given"}, "communities.order must be one of random, community, got 'given'"),
        ({"homophily": 0.1}, "communities.homophily must be from 1/4, which is chance, to 1, got 0.1"),
        ({"signal": "much"}, "communities.signal must be a number ≥ 0 and ≤ 1000000.0, got 'much'"),
        ({"degree_exponent": 1.0}, "communities.degree_exponent must be ≥ 1.01"),
        ({"seed": -1}, "communities.seed must be ≥ 0, got -1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.load("communities", **{"size": "tiny", **options})


GOLDEN_TINY = "55f581a83b7f0c9111754ad7138676918fe1887199b7e4a0cc03722fe4376545"


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
    monkeypatch.setattr(block_model, "_EDGES_AT_A_TIME", 777)
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
        ("communities", "a", {"seeds": 1}, "unknown key 'communities.seeds': did you mean communities.seed"),
        ("communities", "a", {"memory": "4G"}, "memory: expected an amount of memory such as 4GiB, .*, got '4G'"),
    ],
)
def test_what_cannot_be(tmp_path: Path, name: str, file: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((DatasetError, GraphError), match=message):
        datasets.generate(name, tmp_path / file, **options)
    assert os.listdir(tmp_path) == []
