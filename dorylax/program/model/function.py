"""Takes a plain function `f(params, graph, *inputs)` as a model."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, final

import jax

from dorylax.errors import InputError
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree, training_flags


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


def take_apart(function: Callable[..., Any], params: Tree) -> ModelParts:
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


def keywords_of(function: Callable[..., Any]) -> Keywords:
    """Return the function's keyword inputs, in addition to graph and features."""
    return Keywords.of(inspect.signature(function), given=3, apart=("key", *_bound(function)))


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
