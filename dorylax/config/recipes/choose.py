"""Which recipe a run takes what is not given from: by its model and its data set, or by the name that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.config.recipes.base import Recipe
from dorylax.config.recipes.default import DEFAULT, default
from dorylax.config.recipes.tuned import SOURCE, TUNED
from dorylax.settings.errors import ConfigError, shown

_PUBLISHED = "published"
_TUNED = "tuned"

PUBLISHED_FOR: Mapping[str, Mapping[str, Any]] = {
    "cora": {},
    "citeseer": {},
    "pubmed": {},
    # The built-in graph, which the shipped sweeps train on. Its features are no counts of words, whose rows have a sum.
    "communities": {"data.row_normalise": False},
}
"""The data sets whose recipe is the model's published one, and what it changes there."""


def choose(
    name: str | None, model: str, data: str, published: Mapping[str, Any], source: str, *, of_vertices: bool
) -> Recipe:
    """The recipe of a run.

    Args:
        name: as `train.recipe` has it: a kind, `kind/data set` for another data set's, or None: the data set's own
            published one if it has one, else the default.
        model: its name.
        data: the data set's name, or a path.
        published: the settings of the model's published recipe, dotted; empty for a model of the user's own.
        source: where they were published.
        of_vertices: whether the task predicts for vertices.

    Raises:
        ConfigError: there is no such recipe.
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
    raise ConfigError(
        f"train.recipe = {shown(name)}: {model} has no such recipe{'' if slash else f' for {data}'}: choose from "
        + ", ".join(_known(model, data, published=bool(published))),
        "train.recipe",
    )


def _known(model: str, data: str, *, published: bool) -> list[str]:
    """What `train.recipe` may be for a model."""
    found = [DEFAULT]
    if published:
        found += [_PUBLISHED, *(f"{_PUBLISHED}/{one}" for one in PUBLISHED_FOR if one != data)]
    return found + [_TUNED if of == data else f"{_TUNED}/{of}" for one, of in TUNED if one == model]
