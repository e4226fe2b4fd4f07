"""Recorded values with which a resumed run continues, even if recipes and defaults have changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dorylax.config import RunConfig
from dorylax.config.check import flatten
from dorylax.settings.errors import ConfigError
from dorylax.store.run_directory import RunDirectory, RunDirectoryError

_NAMES = ("data.name", "model.name", "task.name")
_OF_RECIPES = ("data.row_normalise", "train.epochs", "train.recipe")
"""Keys that recipes set, in addition to all of models and optimizers."""


def recorded(folder: Path, given: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Return values that a recipe may set and that differ between the runs in a folder and a new configuration.

    Args:
        folder: Folder of `dorylax train --out`.
        given: Values that the user gives now, by dotted keys; these take precedence.
        config: Configuration resolved from `given`.

    Returns:
        Values by dotted keys that are not in `given`. Empty if a recipe is given, or if the run cannot be read or trains
        something else, which the resumed run reports.
    """
    path = next(iter(sorted(folder.glob("seed-*/config.yaml"))), None)
    if path is None or "train.recipe" in given:
        return {}
    try:
        values = flatten(RunDirectory.open(path.parent).config)
    except (RunDirectoryError, ConfigError):
        return {}
    fresh = config.dotted()
    if any(values.get(key) != fresh.get(key) for key in _NAMES):
        return {}
    # With another optimizer, the run's optimizer options may not exist.
    other = values.get("optimizer.name") != fresh["optimizer.name"]
    prefixes = ("model.", *(() if other else ("optimizer.",)))
    return {
        key: value
        for key, value in values.items()
        if (key in _OF_RECIPES or key.startswith(prefixes)) and key not in given and fresh.get(key) != value
    }
