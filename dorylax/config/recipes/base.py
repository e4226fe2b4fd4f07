"""What a recipe is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Recipe(NamedTuple):
    """Settings of a model on a graph.

    Attributes:
        name: as `train.recipe` takes it; None of a model of the user's own, for which nobody has chosen any.
        settings: dotted keys of the configuration, with their values.
        source: where they come from.
        task: the task that has changed some of them; None where none has.
    """

    name: str | None
    settings: Mapping[str, Any]
    source: str
    task: str | None = None
