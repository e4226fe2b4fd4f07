"""A recipe in one line, as `dorylax train` says which one a run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.config.recipes.base import Recipe
from dorylax.settings.errors import shown


def line(recipe: Recipe, values: Mapping[str, Any]) -> str:
    """`recipe: default (chosen on several graphs, docs/recipes.md), but train.epochs=5`.

    Args:
        recipe: that what was not given came from.
        values: of the configuration, dotted.
    """
    if recipe.name is None:
        return "recipe: none, the model is your own: general defaults (docs/configuration.md)"
    changed = [f"{key}={shown(values[key])}" for key, usual in recipe.settings.items() if values.get(key) != usual]
    source = recipe.source.partition(". ")[0].removesuffix(".")
    by_task = "" if recipe.task is None else f"; as {recipe.task} changes it, docs/tasks.md"
    return f"recipe: {recipe.name} ({source}{by_task})" + (f", but {', '.join(changed)}" if changed else "")
