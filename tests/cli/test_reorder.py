"""`dorylax reorder`: other rows, the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.array_folder import size_on_disk
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.stored import open_arrays


@pytest.fixture
def given(tmp_path: Path) -> Path:
    load("communities", size="tiny").save(tmp_path / "given")
    return tmp_path / "given"


def test_an_archive_in_order_of_communities(dorylax, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dorylax.graph.partition.locality.COMMUNITY", 100)
    out = given.with_name("moved")
    code, text, err = dorylax("reorder", str(given), "--out", str(out), "--memory", "2GiB")
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: 1,000 vertices and 10,000 edges in the order of communities, ")
    moved, data = Dataset.from_folder(out), Dataset.from_folder(given)
    assert moved.graph.vertex_ids is not None
    np.testing.assert_array_equal(moved.features, data.features[moved.graph.vertex_ids])
    back = given.with_name("back")
    content = json.loads(dorylax("reorder", str(out), "--out", str(back), "--order", "user", "--json").out)
    assert content["num_vertices"] == 1000
    assert content["bytes"] == size_on_disk(back)
    assert content["peak_memory"] > 10**7
    assert Dataset.from_folder(back).graph.vertex_ids is None
    np.testing.assert_array_equal(Dataset.from_folder(back).features, data.features)


def test_predictions_are_in_the_users_order(dorylax, trained: Path, given: Path) -> None:
    moved, shuffled = given.with_name("moved"), np.random.default_rng(0).permutation(1000).astype(np.int32)
    from dorylax.graph.reordering import write_in_order

    with open_arrays(given) as archive:
        write_in_order(archive, shuffled, moved, room=2**24)
    tables = []
    for file in (given, moved):
        for suffix in ("npz", "csv"):
            out = given.with_name(f"{file.stem}-predictions.{suffix}")
            words = ("predict", "--run", str(trained), "--seed", "0", "--data", str(file), "--out", str(out))
            assert dorylax(*words).code == 0
        tables.append(given.with_name(f"{file.stem}-predictions.csv").read_text())
    assert tables[0] == tables[1]
    with (
        np.load(given.with_name("given-predictions.npz")) as one,
        np.load(given.with_name("moved-predictions.npz")) as other,
    ):
        np.testing.assert_allclose(one["logits"], other["logits"], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(one["predictions"], other["predictions"])


def test_interrupted(dorylax, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(archive: object, order: object, out: Path, **_: object) -> None:
        next(out.parent.glob(".out.dorylax-*")).joinpath("half").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("dorylax.graph.reordering.write_in_order", stop)
    out = given.with_name("out")
    code, text, err = dorylax("reorder", str(given), "--out", str(out))
    assert (code, text, err.strip()) == (130, "", f"interrupted: {out} is what it was; the same command begins anew")
    assert {path.name for path in given.parent.iterdir()} == {"given"}
