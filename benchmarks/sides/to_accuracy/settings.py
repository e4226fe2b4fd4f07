"""What is tuned, on each side with as many trials: the spaces, and which settings are tried."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

Settings = Mapping[str, Any]

HIDDEN = 128

_SHARED: dict[str, Sequence[Any]] = {
    "model": ("gcn", "sage"),
    "learning_rate": (0.003, 0.01, 0.03),
    "weight_decay": (0.0, 5e-4),
    "dropout": (0.0, 0.5),
}
_SAMPLED = {**_SHARED, "batch": (512, 2048), "fanout": (5, 10, 25), "workers": (0, 1)}
SPACES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "dorylax": _SHARED,
    "dgl": _SHARED,
    "pyg": _SHARED,
    "dgl-sampling": _SAMPLED,
}
"""By side: the values of each setting. The model has two layers, 128 wide; dropout is of each layer's input, weight decay is
added to the gradient, Adam optimizes."""

_FULL_GRAPH = {"model": "gcn", "learning_rate": 0.01, "weight_decay": 5e-4, "dropout": 0.5}
EXAMPLES: Mapping[str, Settings] = {
    "dorylax": _FULL_GRAPH,
    "dgl": _FULL_GRAPH,
    "pyg": _FULL_GRAPH,
    # DGL's examples/sampling/node_classification.py.
    "dgl-sampling": {
        "model": "sage",
        "learning_rate": 1e-3,
        "weight_decay": 5e-4,
        "dropout": 0.5,
        "batch": 1024,
        "fanout": 10,
        "workers": 0,
    },
}
"""By side: what the library's own example for node classification has, tried first."""


def drawn(side: str, trials: int) -> list[Settings]:
    """The settings that are tried: the example's, then others by chance, each once, whatever the graph.

    Args:
        side: whose.
        trials: how many, as many for every side.
    """
    space = SPACES[side]
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    others = [one for one in every if one != EXAMPLES[side]]
    return [EXAMPLES[side], *random.Random(0).sample(others, trials - 1)]
