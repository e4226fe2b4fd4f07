"""What a recipe is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Recipe(NamedTuple):
    """Settings of a model on a graph.

    Attributes:
        name: as `train.recipe` takes it: a kind, or `kind/data set` for what is of another data set than the run's.
        settings: dotted keys of the configuration, with their values.
        source: where they come from.
    """

    name: str
    settings: Mapping[str, Any]
    source: str
