"""Which kind of model something is."""

from __future__ import annotations

from typing import Any

from flax import linen, nnx

from dorylax.program.model import flax_linen, flax_nnx, function
from dorylax.program.model.base import ModelKindError, ModelParts, Tree


def take_apart(
    model: Any, graph: Any, *inputs: Any, params: Tree = None, rngs: tuple[str, ...] = ("dropout",)
) -> ModelParts:
    """A Flax NNX module, a Flax Linen module or a plain function, taken apart.

    Args:
        model: the model; `ModelParts` are returned as they are.
        graph: what it will be called with: arrays, or shapes.
        inputs: likewise.
        params: the parameters of a plain function: arrays or shapes.
        rngs: names of the random streams of a Linen module.

    Raises:
        TypeError: none of these kinds.
        ValueError: it has no parameters.
    """
    if isinstance(model, ModelParts):
        return model
    if isinstance(model, nnx.Module):
        return flax_nnx.take_apart(model)
    if isinstance(model, linen.Module):
        return flax_linen.take_apart(model, graph, *inputs, rngs=rngs)
    if callable(model) and not isinstance(model, type):
        return function.take_apart(model, params)
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    raise ModelKindError(
        f"model must be a Flax NNX or Linen module (an instance), or a function f(params, graph, x), got {kind}"
    )
