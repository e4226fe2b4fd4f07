"""Recipes: settings that were chosen for a model on a graph, and the choice of a run's recipe.

A run takes values that are not given from one recipe: that of its model and data set, or the one that it names. `tuned`
lists the recipes of published searches. Published recipes of models are next to the models (`dorylax.layers.registry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dorylax.config.tuned import SOURCE, TUNED
from dorylax.settings.errors import ConfigError, shown

DEFAULT = "default"
_PUBLISHED = "published"
_TUNED = "tuned"
PUBLISHED_FOR: Mapping[str, Mapping[str, Any]] = {
    "cora": {},
    "citeseer": {},
    "pubmed": {},
    # The built-in graph, which the shipped sweeps train on. Its features are no counts of words, whose rows have a sum.
    "communities": {"data.row_normalise": False},
}
"""The data sets whose recipe is the model's published one, with their changes of it."""

_FEWEST_EPOCHS = 500
_LEAST_WIDTH = 64
"""Over all heads."""


class Recipe(NamedTuple):
    """Settings of a model on a graph.

    Attributes:
        name: Name of the recipe for `train.recipe`; None for a user-defined model, which lacks a recipe.
        settings: Dotted keys of the configuration, with their values.
        source: Origin of the settings.
        task: The task that changed some of them; None if none did.
    """

    name: str | None
    settings: Mapping[str, Any]
    source: str
    task: str | None = None

    def line(self, values: Mapping[str, Any]) -> str:
        """Return the line of `dorylax train` on the recipe: `recipe: default (chosen on …), but train.epochs=5`.

        Args:
            values: Dotted values of the configuration.
        """
        if self.name is None:
            return "recipe: none, the model is your own: general defaults (docs/configuration.md)"
        changed = [f"{key}={shown(values[key])}" for key, usual in self.settings.items() if values.get(key) != usual]
        source = self.source.partition(". ")[0].removesuffix(".")
        by_task = "" if self.task is None else f"; as {self.task} changes it, docs/tasks.md"
        return f"recipe: {self.name} ({source}{by_task})" + (f", but {', '.join(changed)}" if changed else "")


def choose(
    name: str | None, model: str, data: str, published: Mapping[str, Any], source: str, *, of_vertices: bool
) -> Recipe:
    """Return the recipe of a run.

    Args:
        name: Value of `train.recipe`: a kind, `kind/data set` for the recipe of another data set, or None: the published
            one if the data set has one, else the default.
        model: Name of the model.
        data: Name of the data set, or a path.
        published: Settings of the model's published recipe, dotted; empty for a user-defined model.
        source: Their publication.
        of_vertices: Whether the task predicts for vertices.

    Raises:
        ConfigError: There is no such recipe.
    """
    if not published and name in (None, DEFAULT):
        return Recipe(None, {}, "")
    name = name or (_PUBLISHED if data in PUBLISHED_FOR else DEFAULT)
    kind, slash, other = name.partition("/")
    of = other if slash else data
    if published and name == DEFAULT:
        return default(published, source, of_vertices=of_vertices)
    if published and kind == _PUBLISHED and (not slash or of in PUBLISHED_FOR):
        return Recipe(name, {**published, **PUBLISHED_FOR.get(of, {})}, source)
    if kind == _TUNED and (model, of) in TUNED:
        return Recipe(f"{_TUNED}/{of}", TUNED[model, of], SOURCE)
    known = [DEFAULT]
    if published:
        known += [_PUBLISHED, *(f"{_PUBLISHED}/{one}" for one in PUBLISHED_FOR if one != data)]
    known += [_TUNED if one == data else f"{_TUNED}/{one}" for of_model, one in TUNED if of_model == model]
    raise ConfigError(
        f"train.recipe = {shown(name)}: {model} has no such recipe{'' if slash else f' for {data}'}: choose from "
        + ", ".join(known),
        "train.recipe",
    )


def default(published: Mapping[str, Any], source: str, *, of_vertices: bool) -> Recipe:
    """Return the recipe for graphs without their own: a model's published settings with a few changes.

    docs/log/2026-11.md ("Recipes") has the comparisons by which the changes were chosen, and their figures on other graphs.
    For tasks of other examples than vertices, only features stay as they are: a row that counts no words may well have the
    sum 0.
    """
    changed = {**published, "data.row_normalise": False}
    if not of_vertices:
        return Recipe(DEFAULT, changed, f"{source.partition('. ')[0].removesuffix('.')}, features as they are")
    changed["train.epochs"] = max(changed["train.epochs"], _FEWEST_EPOCHS)
    if (width := changed.get("model.hidden_features")) is not None:
        changed["model.hidden_features"] = max(width, _LEAST_WIDTH // changed.get("model.heads", 1))
    return Recipe(DEFAULT, changed, "chosen on several graphs, docs/recipes.md")
