"""A Flax Linen module taken apart. Its parameters are those of `module.init`, whose shapes need no data."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, final

import jax
from flax import linen

from dorylax.program.model.base import ModelParts, NoParametersError, Tree, training_flags


@final
@dataclasses.dataclass(frozen=True)
class LinenStructure:
    """The static half of a Linen model: the module itself, which holds no arrays."""

    module: linen.Module

    def apply_train(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> tuple[Any, Tree]:
        """One forward pass with dropout: the model's output and its new state."""
        variables = {"params": params, **state}
        flags = self._flags(training=True)
        if not state:
            return self.module.apply(variables, graph, *inputs, rngs=streams, **flags), {}
        output, updated = self.module.apply(variables, graph, *inputs, rngs=streams, mutable=sorted(state), **flags)
        return output, {**state, **updated}

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> Any:
        """One exact forward pass, without dropout and without updating anything: the model's output."""
        del streams
        return self.module.apply({"params": params, **state}, graph, *inputs, **self._flags(training=False))

    def _flags(self, *, training: bool) -> dict[str, Any]:
        return training_flags(inspect.signature(self.module.__call__).parameters, training=training)


def take_apart(module: linen.Module, graph: Any, *inputs: Any, rngs: tuple[str, ...] = ("dropout",)) -> ModelParts:
    """Splits a Linen module; parameters and state are shapes (`jax.ShapeDtypeStruct`), not values.

    Args:
        module: called as `module(graph, *inputs)`, with a keyword `train`, `training`, `is_training` or `deterministic`
            if it has one of these.
        graph: the graph it is initialised with; arrays or shapes.
        inputs: likewise.
        rngs: names of its random streams besides `params`.

    Raises:
        ValueError: it has no parameters.
    """
    streams = {name: jax.random.key(k) for k, name in enumerate(rngs)}
    structure = LinenStructure(module)

    def init(graph: Any, *inputs: Any) -> Any:
        flags = structure._flags(training=True)
        return module.init({"params": jax.random.key(0), **streams}, graph, *inputs, **flags)

    variables = dict(jax.eval_shape(init, graph, *inputs))
    params = variables.pop("params", {})
    if not jax.tree.leaves(params):
        raise NoParametersError(f"model {type(module).__name__} has no parameters: there is nothing to train")
    variables.pop("intermediates", None)
    return ModelParts(type(module).__name__, structure, params, streams, variables)
