"""What a run that is resumed has recorded: it goes on with that, whatever recipes and defaults say by now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dorylax.config import RunConfig
from dorylax.config.check import flatten
from dorylax.runs.directory import RunDirectory, RunDirectoryError
from dorylax.settings.errors import ConfigError

_NAMES = ("data.name", "model.name", "task.name")
_OF_RECIPES = ("data.row_normalise", "train.epochs", "train.recipe")
"""And all of models and optimizers."""


def recorded(folder: Path, given: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """The values, of those that a recipe may set, that the runs in a folder have and a configuration has not.

    Args:
        folder: of `dorylax train --out`.
        given: what the user gives now, dotted, which wins.
        config: freshly resolved from that.

    Returns:
        Dotted keys that are not in `given`. None where a recipe is given, and none of a run that cannot be read or trains
        something else: what goes on with it says so.
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
    # Another optimizer than the run's may not have the options of the run's.
    other = values.get("optimizer.name") != fresh["optimizer.name"]
    prefixes = ("model.", *(() if other else ("optimizer.",)))
    return {
        key: value
        for key, value in values.items()
        if (key in _OF_RECIPES or key.startswith(prefixes)) and key not in given and fresh.get(key) != value
    }
