"""From two CSV files to named predictions in ten lines."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def write_tables(folder: Path) -> pd.DataFrame:
    """Papers of two topics that cite their own; the rows of the file are in no order of the ids."""
    rng = np.random.default_rng(0)
    topic = np.repeat(["physics", "biology"], 30)
    ids = np.array([f"p{k:02d} {name}" for k, name in enumerate(topic)], object)
    papers = pd.DataFrame({"id": ids, "x": rng.normal(size=60), "y": rng.normal(size=60), "label": topic})
    papers.loc[rng.permutation(60)[:6], "label"] = None
    ends = rng.integers(0, 30, (2, 400)) + 30 * rng.integers(0, 2, 400)
    papers.sample(frac=1, random_state=1).to_csv(folder / "papers.csv", index=False)
    pd.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]]}).to_csv(folder / "cites.csv", index=False)
    return papers.assign(topic=topic)


def test_ten_lines_train_and_predict_with_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    truth = write_tables(tmp_path).set_index("id")["topic"]
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING)

    import optax
    import pandas as pd
    from flax import nnx

    import dorylax

    data = dorylax.Dataset.from_dataframes(pd.read_csv("papers.csv"), pd.read_csv("cites.csv"), "mydata", key="id")
    model = dorylax.layers.GCN(data.num_features, 8, data.num_classes, rngs=nnx.Rngs(0))
    trainer = dorylax.Trainer(model, data, optimizer=optax.adam(0.05), epochs=40)
    trainer.fit()
    classes = data.class_names[trainer.predict().argmax(axis=1)]
    pd.DataFrame({"id": data.vertex_names, "class": classes}).to_csv("predictions.csv", index=False)

    found = pd.read_csv("predictions.csv").set_index("id")["class"]
    assert sorted(found.index) == sorted(truth.index)
    assert (found == truth.loc[found.index]).mean() > 0.9
    assert [record.getMessage() for record in caplog.records] == [
        "mydata has no masks: 60 % of its labelled vertices train, 20 % validate and 20 % test (split_seed=0); give masks, "
        "or use Dataset.with_split, for another split"
    ]
    assert [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)] == [32, 11, 11]
    data.reorder(np.arange(60)[::-1]).save("mydata")
    kept = dorylax.load("mydata")
    assert kept.vertex_names.tolist() == data.vertex_names.tolist()
    assert kept.class_names.tolist() == ["biology", "physics"]
