"""The default: what is not given of a run on a graph that has no recipe of its own.

Chosen by `benchmarks/defaults.py --choose`, and shown on other graphs by `benchmarks/defaults.py` (docs/recipes.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dorylax.config.recipes.base import Recipe

DEFAULT = "default"

_EPOCHS = "train.epochs"
_WIDTH = "model.hidden_features"
_FEWEST_EPOCHS = 500
_LEAST_WIDTH = 64
"""Over all heads."""


def default(published: Mapping[str, Any], source: str, *, of_vertices: bool) -> Recipe:
    """A model's published settings, with what the default changes of them.

    Args:
        published: the model's published recipe, dotted.
        source: where that was published.
        of_vertices: whether the task predicts for vertices. For others nothing was chosen but to leave features alone: a
            row of what is no count of words may well have the sum 0.
    """
    changed = {**published, "data.row_normalise": False}
    if not of_vertices:
        return Recipe(DEFAULT, changed, f"{source.partition('. ')[0].removesuffix('.')}, features as they are")
    changed[_EPOCHS] = max(changed[_EPOCHS], _FEWEST_EPOCHS)
    if _WIDTH in changed:
        changed[_WIDTH] = max(changed[_WIDTH], _LEAST_WIDTH // changed.get("model.heads", 1))
    return Recipe(DEFAULT, changed, "chosen on several graphs, docs/recipes.md")
