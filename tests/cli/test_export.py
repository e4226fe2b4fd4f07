"""`dorylax export`: a run directory is enough, and features are prepared as the run's were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dorylax.graph.datasets import load
from dorylax.inference.loader import Model


def edges_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    data = load(str(path)) if path.suffix == ".npz" else load("communities", size="tiny")
    offsets, sources = data.graph.host_rows()
    return np.stack([sources, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))]), data.features


def test_it_predicts_what_predict_predicts(dorylax, trained: Path, tmp_path: Path) -> None:
    out, logits = tmp_path / "model.zip", tmp_path / "logits.npz"
    code, said, _ = dorylax("export", str(trained), "--seed", "1", "--out", str(out))
    assert (code, said) == (0, f"gcn of {trained}/seed-1: {out}, {out.stat().st_size:,} bytes\n")
    assert dorylax("predict", "--run", str(trained), "--seed", "1", "--out", str(logits)).code == 0
    want = np.load(logits)["logits"]
    np.testing.assert_allclose(Model(out)(*edges_of(tmp_path)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalised", [True, False])
def test_features_are_prepared_as_the_run_s(dorylax, tmp_path: Path, normalised: bool) -> None:
    run, out, logits = tmp_path / "run", tmp_path / "model.zip", tmp_path / "logits.npz"
    given = ["--set", "data.size=tiny", "--set", f"data.row_normalise={str(normalised).lower()}", "--epochs", "2"]
    assert dorylax("train", "--data", "communities", "--model", "gcn", *given, "--out", str(run)).code == 0
    assert dorylax("export", str(run), "--out", str(out)).code == 0
    assert dorylax("predict", "--run", str(run), "--out", str(logits)).code == 0
    model = Model(out)
    assert model.meta["row_normalise"] is normalised
    np.testing.assert_allclose(model(*edges_of(tmp_path)), np.load(logits)["logits"], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_one_line(dorylax, trained: Path, tmp_path: Path) -> None:
    for words, message in (
        ([str(tmp_path), "--out", "x.zip"], f"{tmp_path} is not a run directory"),
        ([str(trained), "--seed", "7", "--out", "x.zip"], "has no seed 7"),
        ([str(trained), "--out", str(tmp_path)], f"--out {tmp_path} is a folder: give a file in it"),
        ([str(trained), "--out", "/dev/null"], "--out /dev/null is no regular file"),
        ([str(trained), "--out", str(tmp_path / "not" / "there.zip")], "there is no folder"),
        ([str(trained)], "--out"),
    ):
        code, out, error = dorylax("export", *words)
        assert code in (1, 2)
        assert out == ""
        assert message in error
