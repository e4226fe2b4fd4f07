"""Takes any model apart: a Flax NNX module, a Flax Linen module, or a plain function `f(params, graph, *inputs)`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, final

import jax
from flax import linen, nnx

from dorylax.errors import InputError
from dorylax.program.model import flax_linen, flax_nnx
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree, training_flags


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
        return _function_apart(model, params)
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
    if isinstance(model, nnx.Module | linen.Module):
        return Keywords.of(model.__call__, given=2)
    return Keywords.of(model, given=3, apart=("key", *_bound(model)))


def _unknown(model: Any) -> ModelKindError:
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    return ModelKindError(
        f"model must be a Flax NNX or Linen module (an instance), or a function f(params, graph, x), got {kind}"
    )


@final
@dataclasses.dataclass(frozen=True)
class FunctionStructure:
    """Static part of a plain function: the function itself."""

    function: Callable[..., Any]

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """See `ModelStructure`. The state stays unchanged, since functions have none."""
        return self.function(params, graph, *inputs, **streams, **named, **self._flags(training=True)), state

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """See `ModelStructure`."""
        del state
        return self.function(params, graph, *inputs, **streams, **named, **self._flags(training=False))

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """Refuse, since functions lack layers.

        Raises:
            ModelKindError: Always.
        """
        del params, streams, state, graph, inputs, named
        name = name_of(self.function)
        raise ModelKindError(
            f"{name} is a function, without layers whose outputs could be recorded: have it return what you want to see, or "
            "call the function that computes it with result.params"
        )

    def bound(self, params: Tree, streams: Tree, state: Tree) -> Callable[..., Any]:
        """Return `functools.partial` of the function, called as `(graph, *inputs)`."""
        del state
        return functools.partial(self.function, params, **streams, **self._flags(training=False))

    def _flags(self, *, training: bool) -> dict[str, bool]:
        return training_flags(_parameters(self.function), training=training)


def _function_apart(function: Callable[..., Any], params: Tree) -> ModelParts:
    """Take a function as a model.

    Args:
        function: `f(params, graph, *inputs)`. It receives a random key if it has an argument `key`, and the mode if it has
            an argument `train`, `training`, `is_training` or `deterministic`.
        params: Its parameters: arrays or abstract arrays.

    Raises:
        ValueError: There are no parameters.
    """
    name = name_of(function)
    if not jax.tree.leaves(params):
        raise InputError(f"model {name} has no parameters: give params=…, the first argument of the function")
    streams = {"key": jax.random.key(0)} if "key" in _parameters(function) else {}
    return ModelParts(name, FunctionStructure(function), params, streams, {}, keywords_of(function))


def name_of(function: Callable[..., Any]) -> str:
    """Return the function's name for messages."""
    named = function.func if isinstance(function, functools.partial) else function
    return str(getattr(named, "__name__", type(named).__name__))


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that a call may still set."""
    return [name for name in inspect.signature(function).parameters if name not in _bound(function)]


def _bound(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the keywords that the user has fixed with `functools.partial`."""
    return tuple(function.keywords) if isinstance(function, functools.partial) else ()
