"""A recipe belongs to a model on a data set; what else there is, is asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.config import ConfigError, RunConfig
from dorylax.config.recipe import PUBLISHED_FOR, TUNED, default
from dorylax.graph import datasets
from dorylax.layers.registry import MODELS


@pytest.mark.parametrize("model", list(MODELS))
def test_features_stay_as_they_are_where_no_recipe_says_otherwise(model: str) -> None:
    own = RunConfig.resolve({"model.name": model, "data.name": "mine.npz"})
    assert own.data.row_normalise is False
    assert (own.train.recipe, own.recipe().name) == ("default", "default")
    assert own.train.epochs >= MODELS[model].recipe["train.epochs"]
    assert RunConfig.resolve({"model.name": model, "data.name": "cora"}).data.row_normalise is True


def test_the_data_sets_of_the_published_recipes_exist() -> None:
    assert set(PUBLISHED_FOR) <= set(datasets.names())


def test_what_is_given_beats_the_recipe_of_the_data_set() -> None:
    assert MODELS["gcn"].recipe["data.row_normalise"] is True
    assert RunConfig.resolve({"data.name": "communities"}).data.row_normalise is False
    assert RunConfig.resolve({"data.name": "communities", "data.row_normalise": True}).data.row_normalise is True


def test_recipes_of_other_data_sets_are_asked_for_by_name() -> None:
    asked = {
        name: RunConfig.resolve({"data.name": "mine.npz", "train.recipe": name})
        for name in ("published/cora", "tuned/wikics")
    }
    cora = RunConfig.resolve({"data.name": "cora"})
    assert asked["published/cora"].model == cora.model
    assert asked["published/cora"].data.row_normalise is True
    wikics = asked["tuned/wikics"]
    assert (wikics.model.hidden_features, wikics.model.num_layers, wikics.model.norm) == (256, 4, "layer")
    photo = RunConfig.resolve({"data.name": "amazon-photo", "train.recipe": "tuned", "model.dropout": 0.1})
    assert (photo.model.residual, photo.model.dropout) == (True, 0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"train.recipe": "tuned", "data.name": "mine.npz", "model.name": "sage"},
            r"train\.recipe = 'tuned': sage has no such recipe for mine\.npz: choose from default, published, .*tuned/cora",
        ),
        (
            {"train.recipe": "tuned", "model.name": "gin", "data.name": "cora"},
            "choose from default, published, published/c",
        ),
        (
            {"train.recipe": "published/reddit"},
            "gcn has no such recipe: choose from default, published, published/cora",
        ),
        ({"train.recipe": "default/cora"}, "gcn has no such recipe: choose from default"),
    ],
)
def test_one_that_there_is_not_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.resolve(given)


@pytest.mark.parametrize(("model", "data"), TUNED)
def test_every_tuned_recipe_is_one_of_its_model(model: str, data: str) -> None:
    config = RunConfig.resolve({"model.name": model, "data.name": "mine.npz", "train.recipe": f"tuned/{data}"})
    assert {key: config.dotted()[key] for key in TUNED[model, data]} == dict(TUNED[model, data])
    assert config.recipe().settings == TUNED[model, data]
    assert RunConfig.from_yaml(config.to_yaml()) == config


def test_a_configuration_says_which_recipe_its_values_are_from() -> None:
    """By a name that means the same whatever the data: what a run leaves behind is also copied, and edited."""
    for given, name in (
        ({"data.name": "cora"}, "published"),
        ({"data.name": "mine.npz"}, "default"),
        ({"data.name": "mine.npz", "train.recipe": None}, "default"),
        ({"data.name": "amazon-photo", "train.recipe": "tuned"}, "tuned/amazon-photo"),
    ):
        config = RunConfig.resolve(given)
        assert config.train.recipe == name
        elsewhere = RunConfig.resolve(config.to_dict(), {"data.name": "theirs.npz"})
        assert (elsewhere.train, elsewhere.model) == (config.train, config.model)


def test_a_model_of_ones_own_has_none(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Own:\n    def __init__(self, in_features, out_features, *, rngs): ...\n")
    given = {"model.name": f"{tmp_path / 'own.py'}:Own", "data.name": "cora"}
    for recipe in (None, "default"):
        config = RunConfig.resolve({**given, "train.recipe": recipe})
        assert (config.train.recipe, config.data.row_normalise) == (None, False)
        assert RunConfig.from_yaml(config.to_yaml(), trust=True).to_dict() == config.to_dict()
    with pytest.raises(ConfigError, match=r"has no such recipe for cora: choose from default$"):
        RunConfig.resolve({**given, "train.recipe": "published"})


def test_a_recipe_is_no_identity_but_its_values_are() -> None:
    cora = RunConfig.resolve({"data.name": "cora"})
    assert RunConfig.resolve({"data.name": "cora", "train.recipe": "published"}).key() == cora.key()
    assert RunConfig.resolve({"data.name": "cora", "train.recipe": "default"}).key() != cora.key()


def test_other_tasks_than_those_of_vertices_only_leave_features_as_they_are() -> None:
    links = RunConfig.resolve({"task.name": "link-prediction", "data.name": "mine.npz"})
    assert (links.data.row_normalise, links.model.hidden_features, links.train.epochs) == (False, 32, 200)
    assert links.recipe().task == "link-prediction"
    assert RunConfig.resolve({"task.name": "link-prediction", "data.name": "cora"}).data.row_normalise is True


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
    assert config.recipe().line(config.dotted()) == expected


def test_the_line_of_a_model_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Own:\n    def __init__(self, in_features, out_features, *, rngs): ...\n")
    config = RunConfig.resolve({"model.name": f"{tmp_path / 'own.py'}:Own"})
    assert config.recipe().line(config.dotted()).startswith("recipe: none, the model is your own")
