"""Dispatches on the kind of a model: Flax NNX module, Flax Linen module, or function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flax import linen, nnx

from dorylax.program.model import flax_linen, flax_nnx, function
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree


def take_apart(
    model: Any,
    graph: Any,
    *inputs: Any,
    named: Mapping[str, Any] | None = None,
    params: Tree = None,
    rngs: tuple[str, ...] = ("dropout",),
) -> ModelParts:
    """Take a Flax NNX module, a Flax Linen module or a plain function apart.

    Args:
        model: The model; `ModelParts` are returned unchanged.
        graph: Graph for the model, of arrays or abstract arrays.
        inputs: Positional inputs, arrays or abstract arrays.
        named: Keyword inputs, arrays or abstract arrays.
        params: Parameters of a plain function: arrays or abstract arrays.
        rngs: Names of the random streams of a Linen module.

    Raises:
        TypeError: The model is of another kind.
        ValueError: There are no parameters.
    """
    if isinstance(model, ModelParts):
        return model
    if isinstance(model, nnx.Module):
        return flax_nnx.take_apart(model)
    if isinstance(model, linen.Module):
        return flax_linen.take_apart(model, graph, *inputs, named=named, rngs=rngs)
    if callable(model) and not isinstance(model, type):
        return function.take_apart(model, params)
    raise _unknown(model)


def keywords_of(model: Any) -> Keywords:
    """Return a model's keyword inputs, in addition to graph and features.

    Raises:
        TypeError: The model is of another kind.
    """
    if isinstance(model, ModelParts):
        return model.keywords
    if not callable(model) or isinstance(model, type):
        raise _unknown(model)
    if isinstance(model, nnx.Module):
        return flax_nnx.keywords_of(model)
    return flax_linen.keywords_of(model) if isinstance(model, linen.Module) else function.keywords_of(model)


def _unknown(model: Any) -> ModelKindError:
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    return ModelKindError(
        f"model must be a Flax NNX or Linen module (an instance), or a function f(params, graph, x), got {kind}"
    )
