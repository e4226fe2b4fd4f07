from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylax.graph import Dataset, datasets
from dorylax.graph.datasets import DatasetError, registry


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DORYLAX_DATA, empty."""
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("DORYLAX_DATA", str(path))
    return path


def small(name: str, **options: Any) -> Dataset:
    data = datasets.load("communities", size="tiny", num_vertices=40, **options)
    return Dataset(
        name, data.graph, data.features, data.labels, data.num_classes, data.train_mask, data.val_mask, data.test_mask
    )


def test_a_path_is_read_wherever_it_is(folder: Path, tmp_path: Path) -> None:
    small("mine").save(tmp_path / "file")
    for path in (tmp_path / "file", str(tmp_path / "file")):
        assert datasets.load(path).name == "mine"
    with pytest.raises(DatasetError, match=r"there is no folder .*other\.npz: give the path"):
        datasets.load(tmp_path / "other.npz")


def test_dorylax_data_comes_before_the_cache_and_the_network(folder: Path) -> None:
    small("Cora, as they call it").save(folder / "cora")
    data = datasets.load("cora")
    assert (data.name, data.graph.num_vertices) == ("cora", 40)


def test_the_generator_comes_before_dorylax_data(folder: Path) -> None:
    small("not this one").save(folder / "communities")
    assert datasets.load("communities", size="tiny").graph.num_vertices == 1000


def test_other_archives_have_the_name_of_their_file(folder: Path) -> None:
    small("x").save(folder / "my-graph")
    for other in ("notes.txt", ".hidden.npz"):
        (folder / other).touch()
    assert datasets.load("my-graph").name == "my-graph"
    assert datasets.names()[1 + len(registry.PUBLISHED) :] == ["my-graph"]
    assert datasets.describe()[-1] == datasets.Description(
        "my-graph", None, "a data set of yours", None, "DORYLAX_DATA"
    )


def test_a_name_is_not_a_way_out_of_the_directory(folder: Path) -> None:
    small("x").save(folder.parent / "outside")
    with pytest.raises(DatasetError, match=r"there is no folder \.\./outside"):
        datasets.load("../outside")


def test_multi_label_and_missing_masks(folder: Path) -> None:
    graph = small("x").graph
    labels = (np.arange(120).reshape(40, 3) % 2).astype(np.float32)
    arrays = {
        "indptr": graph.incoming.offsets,
        "indices": graph.incoming.neighbours,
        "features": np.ones((40, 2), np.float32),
        "labels": labels,
    }
    np.savez(folder / "many.npz", **arrays)
    data = datasets.load("many")
    assert (data.multilabel, data.num_classes) == (True, 3)
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (24, 8, 8)
    assert not np.array_equal(datasets.load("many", split_seed=5).train_mask, data.train_mask)
    np.savez(folder / "train-only.npz", **arrays, train_mask=np.arange(40) < 4)
    data = datasets.load("train-only")
    assert (data.train_mask.sum(), data.val_mask.sum(), data.test_mask.sum()) == (4, 0, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coraa", r"there is no data set 'coraa': did you mean cora\?$"),
        ("Cora", "did you mean cora"),
        ("ogbn_arxiv", "did you mean ogbn-arxiv"),
        ("communities-tiny", r"for that size, load\('communities', size='tiny'\)"),
        ("communities:reddit-small", r"for that size, load\('communities', size='reddit-small'\)"),
        ("zzzz", r"there is no data set 'zzzz': choose from communities, cora, "),
        ("", "there is no data set ''"),
    ],
)
def test_unknown_names(cache: Path, name: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        datasets.load(name)


def test_options_are_for_the_generator_only(cache: Path) -> None:
    with pytest.raises(DatasetError, match="cora takes no option 'size'"):
        datasets.load("cora", size="tiny")


def test_dorylax_data_that_is_no_directory(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DORYLAX_DATA", str(tmp_path / "none"))
    with pytest.raises(DatasetError, match=r"DORYLAX_DATA names '.*none', which is not a directory"):
        datasets.load("cora")


def test_names_and_descriptions(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DORYLAX_DATA", "")  # as good as unset
    assert datasets.names() == [
        *("communities", "cora", "citeseer", "pubmed", "amazon-photo", "amazon-computers", "coauthor-cs"),
        *("coauthor-physics", "reddit", "ogbn-arxiv", "ogbn-products"),
    ]
    lines = datasets.describe()
    assert {line.name for line in lines} == set(datasets.names())
    assert {line.origin for line in lines if line.name == "communities"} == {"built in"}
    assert {line.origin for line in lines if line.name != "communities"} == {"download"}
    assert [line.size_name for line in lines][:3] == ["tiny", "small", "medium"]


def test_sources_are_complete() -> None:
    sources = [source for entry in registry.PUBLISHED.values() for source in entry.sources]
    assert len({source.path for source in sources}) == len(sources) == 3 * 8 + 4 + 1 + 2
    for source in sources:
        assert source.url.endswith("/" + source.path.split("/")[1])
        assert source.sha256 is None or len(bytes.fromhex(source.sha256)) == 32
        assert (source.sha256 is None) == source.path.startswith("planetoid/")
