from __future__ import annotations

import pytest

from dorylax.config.recipes.default import default
from dorylax.layers.registry import MODELS


@pytest.mark.parametrize(
    ("model", "width", "epochs"), [("gcn", 64, 500), ("gat", 8, 1000), ("sgc", None, 500), ("sage", 64, 500)]
)
def test_it_is_wide_and_long_enough_and_leaves_features_alone(model: str, width: int | None, epochs: int) -> None:
    published = MODELS[model].recipe
    made = default(published, "a paper", of_vertices=True).settings
    assert (made.get("model.hidden_features"), made["train.epochs"], made["data.row_normalise"]) == (
        width,
        epochs,
        False,
    )
    changed = {key for key in published if made[key] != published[key]}
    assert changed <= {"model.hidden_features", "train.epochs", "data.row_normalise"}
    assert made.keys() == published.keys()


def test_of_other_tasks_only_the_features_are_left_alone() -> None:
    published = MODELS["gcn"].recipe
    made = default(published, "A paper, section 5. More of it.", of_vertices=False)
    assert made.settings == {**published, "data.row_normalise": False}
    assert made.source == "A paper, section 5, features as they are"
