from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.config import RunConfig
from dorylax.config.recipes.words import line


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data.name": "cora"}, "recipe: published (Kipf & Welling, ICLR 2017, section 5.2)"),
        ({"data.name": "a.npz"}, "recipe: default (chosen on several graphs, docs/recipes.md)"),
        (
            {"data.name": "cora", "train.epochs": 5, "data.row_normalise": False},
            "recipe: published (Kipf & Welling, ICLR 2017, section 5.2), but data.row_normalise=false, train.epochs=5",
        ),
        (
            {"data.name": "cora", "task.name": "link-prediction", "train.epochs": 5},
            "recipe: published (Kipf & Welling, ICLR 2017, section 5.2; as link-prediction changes it, docs/tasks.md), "
            "but train.epochs=5",
        ),
        (
            {"data.name": "a.npz", "task.name": "graph-classification"},
            "recipe: default (Kipf & Welling, ICLR 2017, section 5.2, features as they are; as graph-classification changes "
            "it, docs/tasks.md)",
        ),
        (
            {"data.name": "a.npz", "train.recipe": "tuned/wikics"},
            "recipe: tuned/wikics (Luo et al., NeurIPS 2024, arXiv 2406.08993, the authors' commands)",
        ),
    ],
)
def test_one_line_says_which_from_where_and_what_is_changed(given: dict[str, object], expected: str) -> None:
    config = RunConfig.resolve(given)
    assert line(config.recipe(), config.dotted()) == expected


def test_a_model_of_ones_own_has_none(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Own:\n    def __init__(self, in_features, out_features, *, rngs): ...\n")
    config = RunConfig.resolve({"model.name": f"{tmp_path / 'own.py'}:Own"})
    assert line(config.recipe(), config.dotted()).startswith("recipe: none, the model is your own")
