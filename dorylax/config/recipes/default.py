"""The default: what is not given of a run on a graph that has no recipe of its own.

Chosen by `benchmarks/defaults.py --choose` on cora and pubmed with random splits and on generated graphs, and shown by
`benchmarks/defaults.py` on others (docs/recipes.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SOURCE = "chosen on several graphs, docs/recipes.md"

_ANY: Mapping[str, Any] = {"data.row_normalise": False}
"""Whatever is learnt: a sum of features that are no counts means nothing, and may be 0."""

_OF_VERTICES: Mapping[str, Any] = {"train.epochs": 500}
_WIDTH = "model.hidden_features"
_WIDE = 64
"""Over all heads."""


def default(published: Mapping[str, Any], *, of_vertices: bool) -> dict[str, Any]:
    """A model's published settings, with what the default changes of them.

    Args:
        published: the model's published recipe, dotted; empty for a model of the user's own.
        of_vertices: whether the task predicts for vertices. For others nothing else was chosen.
    """
    if not published:
        return {}
    changed = {**published, **_ANY}
    if not of_vertices:
        return changed
    changed["train.epochs"] = max(changed["train.epochs"], _OF_VERTICES["train.epochs"])
    if _WIDTH in changed:
        changed[_WIDTH] = max(changed[_WIDTH], _WIDE // changed.get("model.heads", 1))
    return changed
