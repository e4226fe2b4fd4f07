"""A Flax NNX model taken apart: static structure, and plain trees of arrays that can be jitted, donated and saved.

Trees are nested dicts of arrays (`{"convs": {0: {"kernel": …}}}`), not `nnx.State`: JAX flattens dicts in C++ at every
call, and optax masks see ordinary keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import jax
from flax import nnx

from dorylax.program.model.base import ModelKindError, ModelParts, NoParametersError, Tree

# What a model keeps between epochs besides parameters (batch statistics, say); values sown while it runs are dropped.
_CARRIED = nnx.All(nnx.Not(nnx.Param), nnx.Not(nnx.RngState), nnx.Not(nnx.Intermediate))


@final
@dataclasses.dataclass(frozen=True)
class NnxStructure:
    """The static half of a model, hashable: equal for two models of the same class, sizes and settings."""

    train: nnx.GraphDef[Any]
    evaluate: nnx.GraphDef[Any]

    def apply_train(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> tuple[Any, Tree]:
        """One forward pass with dropout: the model's output and its new state."""
        model = nnx.merge(self.train, params, streams, state)
        output = model(graph, *inputs)
        return output, _pure(nnx.state(model, _CARRIED))

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> Any:
        """One exact forward pass, without dropout and without updating anything: the model's output."""
        return nnx.merge(self.evaluate, params, streams, state)(graph, *inputs)


def take_apart(model: Any) -> ModelParts:
    """Splits a Flax NNX model, which stays as it is.

    Raises:
        TypeError: not a Flax NNX module, or one that cannot be called.
        ValueError: it has no parameters.
    """
    if not isinstance(model, nnx.Module) or not callable(model):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ModelKindError(
            f"model must be a Flax NNX module (an instance of flax.nnx.Module) called as model(graph, x), got {kind}; "
            "Flax Linen modules and plain functions are not supported"
        )
    copy = nnx.clone(model)
    nnx.pop(copy, nnx.Intermediate)
    copy.eval()  # type: ignore[no-untyped-call]
    evaluate = nnx.graphdef(copy)
    copy.train()  # type: ignore[no-untyped-call]
    train, (params, streams, state) = nnx.graphdef(copy), nnx.state(copy, nnx.Param, nnx.RngState, ...)
    if not jax.tree.leaves(params):
        raise NoParametersError(
            f"model {type(model).__name__} has no parameters (nnx.Param): there is nothing to train"
        )
    structure = NnxStructure(train, evaluate)
    return ModelParts(type(model).__name__, structure, _pure(params), _pure(streams), _pure(state))


def put_back(model: nnx.Module, params: Tree, state: Tree) -> None:
    """Writes parameters and carried state into the user's model."""
    for tree in (params, state):
        nnx.update(model, jax.tree.map(jax.numpy.asarray, tree))


def _pure(state: Any) -> Tree:
    return nnx.to_pure_dict(state)
