"""`dorylax reorder`: other rows, the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load


@pytest.fixture
def given(tmp_path: Path) -> Path:
    load("communities", size="tiny").save_npz(tmp_path / "given.npz")
    return tmp_path / "given.npz"


def test_an_archive_in_order_of_communities(dorylax, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dorylax.graph.partition.streamed_communities.COMMUNITY", 100)
    monkeypatch.setattr("dorylax.graph.partition.locality.COMMUNITY", 100)
    out = given.with_name("moved.npz")
    code, text, err = dorylax("reorder", str(given), "--out", str(out), "--memory", "2GiB")
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: 1,000 vertices and 10,000 edges in the order of communities, ")
    moved, data = Dataset.from_npz(out), Dataset.from_npz(given)
    assert moved.graph.vertex_ids is not None
    np.testing.assert_array_equal(moved.features, data.features[moved.graph.vertex_ids])
    back = given.with_name("back.npz")
    content = json.loads(dorylax("reorder", str(out), "--out", str(back), "--order", "user", "--json").out)
    assert content["num_vertices"] == 1000
    assert content["bytes"] == back.stat().st_size
    assert content["peak_memory"] > 10**7
    assert Dataset.from_npz(back).graph.vertex_ids is None
    np.testing.assert_array_equal(Dataset.from_npz(back).features, data.features)


def test_predictions_are_in_the_users_order(dorylax, trained: Path, given: Path) -> None:
    moved, shuffled = given.with_name("moved.npz"), np.random.default_rng(0).permutation(1000).astype(np.int32)
    from dorylax.graph.npz import open_npz
    from dorylax.graph.stream.reorder_archive import write_in_order

    (given.parent / "scratch").mkdir()
    with open_npz(given) as archive:
        write_in_order(archive, shuffled, moved, given.parent / "scratch", room=2**24)
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("none.npz", "--out", "out.npz"), "there is no file none.npz"),
        (("{given}", "--out", "out.txt"), "--out must end in .npz, got 'out.txt'"),
        (("{given}", "--out", "{given}"), "is a file that this command reads"),
        (("{given}", "--out", "{folder}/out.npz", "--memory", "4G B"), "expected an amount of memory such as 4GiB"),
        (("{given}", "--out", "{folder}/out.npz", "--memory", "10MiB"), "10 MiB of memory are too little"),
    ],
)
def test_wrong_words(dorylax, given: Path, words: tuple[str, ...], told: str) -> None:
    filled = [word.format(given=given, folder=given.parent) for word in words]
    code, out, err = dorylax("reorder", *filled)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1
    assert {path.name for path in given.parent.iterdir()} == {"given.npz"}


def test_interrupted(dorylax, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(archive: object, order: object, out: Path, scratch: Path, **_: object) -> None:
        (scratch / "half").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("dorylax.graph.stream.reordering.write_in_order", stop)
    out = given.with_name("out.npz")
    code, text, err = dorylax("reorder", str(given), "--out", str(out))
    assert (code, text, err.strip()) == (130, "", f"interrupted: {out} is what it was; the same command begins anew")
    assert {path.name for path in given.parent.iterdir()} == {"given.npz"}
