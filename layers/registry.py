"""Models by name: those of every module of this package that has a `SPEC`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flax import nnx

from dorylax.layers.recipes import ModelSpec
from dorylax.user_code.references import Arguments, is_reference, load_reference

_FIRST = ("gcn", "gat", "gatv2", "sage", "gin", "sgc", "appnp", "gcnii", "mpnn", "mlp")
"""Models in the order in which texts list them; all others follow by name."""


_modules = [
    importlib.import_module(f"{__package__}.{one.name}") for one in pkgutil.iter_modules([str(Path(__file__).parent)])
]
_specs = {module.SPEC.name: module.SPEC for module in _modules if hasattr(module, "SPEC")}

MODELS: Mapping[str, ModelSpec] = MappingProxyType({name: _specs[name] for name in (*_FIRST, *_specs)})


def build(name: str, in_features: int, out_features: int, options: Mapping[str, Any], rngs: nnx.Rngs) -> Any:
    """Build a model.

    Args:
        name: A key of `MODELS`, or a reference to user code (`dorylax.user_code.references`), whose class receives the
            options unchanged, and widths and streams under its names for them (`Arguments.filled_in`).
        in_features: F, width of the features.
        out_features: C, number of classes.
        options: `model.*` keys without the prefix; missing ones are taken from the model's recipe.
        rngs: Streams `params` and `dropout`.

    Returns:
        The model, called as `model(graph, x [V, F]) -> [V, C]`.

    Raises:
        ValueError: The model is unknown, or an option is not supported or out of range.
    """
    if is_reference(name):
        values = {"in_features": in_features, "out_features": out_features, "rngs": rngs}
        filled = {argument: values[role] for argument, role in Arguments.of(name).filled_in(options).items()}
        return load_reference(name)(**filled, **options)
    if name not in MODELS:
        raise ValueError(f"model.name must be one of {', '.join(MODELS)}, got {name!r}")
    spec = MODELS[name]
    unknown = sorted(set(options) - spec.options)
    if unknown:
        raise ValueError(f"model.{unknown[0]} means nothing to {name}, which has {', '.join(sorted(spec.options))}")
    recipe = {key.removeprefix("model."): value for key, value in spec.recipe.items() if key.startswith("model.")}
    return spec.make(in_features=in_features, out_features=out_features, **recipe | dict(options), rngs=rngs)
