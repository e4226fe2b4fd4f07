"""Description of a named model: its options and its published recipe.

A recipe uses the keys of the run configuration (`dorylax.config`), which takes values from it that the user did not set.
This module is otherwise independent of configurations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, final

_NOT_OPTIONS = {"in_features", "out_features", "edge_features", "activation", "dtype", "param_dtype"}
_KIPF_AND_WELLING = {
    "model.hidden_features": 16,
    "model.num_layers": 2,
    "model.dropout": 0.5,
    "model.norm": "none",
    "model.residual": False,
    "optimizer.name": "adam",
    "optimizer.learning_rate": 0.01,
    "optimizer.weight_decay": 5e-4,
    "optimizer.weight_decay_on": "first",
    "data.row_normalise": True,
    "train.epochs": 200,
}


@final
@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A named model.

    Attributes:
        name: Name of the model.
        make: Its class, called as `make(in_features=…, out_features=…, **options, rngs=rngs)`.
        options: Supported `model.*` keys, without the prefix.
        recipe: Published recipe as dotted configuration keys; learning rates per step, weight decay as the factor λ
            of the gradient term λ·w (L2 penalty λ/2·‖w‖²), rates as probabilities.
        source: The paper, and the parts of the recipe that are not from it.
    """

    name: str
    make: Any
    options: frozenset[str]
    recipe: Mapping[str, Any]
    source: str


def published(name: str, make: Any, source: str, **changes: Any) -> ModelSpec:
    """Return the description of a model, whose options are the arguments of its class that a configuration can hold.

    Args:
        name: Name of the model.
        make: Its class, a `layers.base.module`.
        source: As in `ModelSpec`.
        **changes: Values of the recipe that differ from Kipf & Welling's, which most later papers keep; `a__b` is the
            key a.b.
    """
    options = frozenset(field.name for field in dataclasses.fields(make)) - _NOT_OPTIONS
    recipe = _KIPF_AND_WELLING | {key.replace("__", "."): value for key, value in changes.items()}
    for key in [key for key in recipe if key.startswith("model.") and key.removeprefix("model.") not in options]:
        del recipe[key]
    return ModelSpec(name, make, options, MappingProxyType(recipe), source)
