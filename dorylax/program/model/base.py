"""The model interface of dorylax, independent of libraries: pure functions of trees of arrays."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, final, runtime_checkable

import jax
import jax.numpy as jnp

from dorylax.errors import DorylaxError

Tree = Any
"""Nested dicts (or other pytrees) of arrays or abstract arrays."""


class ModelKindError(DorylaxError, TypeError):
    """The model is of an unsupported kind."""


@runtime_checkable
class ModelStructure(Protocol):
    """Static part of a model, hashable: equal for two models of the same class, sizes and settings."""

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """Run one forward pass with dropout; return the model's output and its new state."""
        ...

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """Run one exact forward pass, without dropout and without updates; return the model's output."""
        ...

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """Run one exact forward pass; return the outputs of its layers, as `recording.name_of` → array.

        Raises:
            TypeError: There are no layers to record.
        """
        ...

    def bound(self, params: Tree, streams: Tree, state: Tree) -> Any:
        """Return the model with these values, ready for the user to call without dropout."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Keywords:
    """Keyword inputs of a model, in addition to graph and features.

    Attributes:
        names: Names in its signature.
        required: Those names without a default.
        any: Whether it accepts any keyword (`**kwargs`).
    """

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    any: bool = False

    @classmethod
    def of(cls, call: Callable[..., Any], *, given: int, apart: Collection[str] = ()) -> Keywords:
        """Read the keywords from the signature of a model's call.

        Args:
            call: The model, or its `__call__`.
            given: Number of its first parameters that are passed by position.
            apart: Names of parameters that are not data.
        """
        parameters = inspect.signature(call).parameters
        named = {
            name: entry.default is entry.empty
            for name, entry in list(parameters.items())[given:]
            if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)
            and name not in (*_TRAINING_FLAGS, *apart)
        }
        every = any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
        return cls(tuple(named), tuple(name for name, required in named.items() if required), every)

    def taken(self, there: Collection[str], *, apart: Collection[str] = ()) -> tuple[str, ...]:
        """Select the available inputs that the model takes; those in `apart` only if its signature names them."""
        return tuple(sorted(name for name in there if name in self.names or (self.any and name not in apart)))


@final
@dataclasses.dataclass(frozen=True)
class ModelParts:
    """A model's static part and its arrays.

    Attributes:
        name: Name of its class or function.
        structure: Static part.
        params: Parameters to train.
        streams: Random keys and counters, as before any epoch.
        state: Constants, and values kept between epochs other than parameters (such as batch statistics).
        keywords: Keyword inputs.
        switched_off: Message about a flag of the whole model that disables training behaviour, with the remedy; empty if
            none was found.
    """

    name: str
    structure: Any
    params: Tree
    streams: Tree
    state: Tree
    keywords: Keywords = Keywords()
    switched_off: str = ""


def signature(tree: Tree) -> Any:
    """Return a hashable description of a tree of arrays: structure, shapes and dtypes."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple(jax.typeof(leaf) for leaf in leaves)


# Usual names of the argument for training mode, and its value in training.
_TRAINING_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}


def training_flags(parameters: Collection[str], *, training: bool) -> dict[str, bool]:
    """Return the keyword that sets training mode in a callable with these parameters, and its value; {} if there is none."""
    found = [name for name in _TRAINING_FLAGS if name in parameters]
    return {name: _TRAINING_FLAGS[name] is training for name in found}


def flags_to_give(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, ...]:
    """Return the flags to pass to a Flax module, without those whose default None defers to its attributes."""
    return tuple(name for name, entry in parameters.items() if name in _TRAINING_FLAGS and entry.default is not None)


def epoch_rng(streams: Any, seed: Any, epoch: Any) -> Any:
    """Return the random streams of one epoch: a pure function of (model's streams, seed, epoch), never carried on.

    Flax keeps a key and a counter per random stream and counts every draw. With carried counters, draws would differ after
    a restart or in another order of intervals. Instead, each epoch starts with new streams: counter 0, key folded with seed
    and epoch. Rows fold their ids later (`dorylax.ops.row_random`).

    Args:
        streams: Pytree of the model's `nnx.RngState` values: typed keys (of any shape) and integer counters.
        seed: Integer in 0 … 2³²-1, or a uint32 scalar array.
        epoch: Integer in 0 … 2³²-1, or a uint32 scalar array.

    Returns:
        A tree of the same structure: each key is `fold_in(fold_in(key, seed), epoch)`, each counter 0.
    """

    def renew(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.zeros_like(leaf)
        folded = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, seed), epoch))(leaf.reshape(-1))
        return folded.reshape(leaf.shape)

    return jax.tree.map(renew, streams)
