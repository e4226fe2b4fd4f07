"""What a model is to dorylax, whatever library wrote it: pure functions of trees of arrays."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from typing import Any, Protocol, final, runtime_checkable

import jax

from dorylax.errors import DorylaxError

Tree = Any
"""Nested dicts (or other pytrees) of arrays, or of their shapes."""


class ModelKindError(DorylaxError, TypeError):
    """Not a model of a kind that dorylax knows."""


class NoParametersError(DorylaxError, ValueError):
    """A model without anything to train."""


@runtime_checkable
class ModelStructure(Protocol):
    """The static half of a model, hashable: equal for two models of the same class, sizes and settings."""

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """One forward pass with dropout: the model's output and its new state."""
        ...

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """One exact forward pass, without dropout and without updating anything: the model's output."""
        ...

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """One such pass: what its layers give, arrays by name (`recording.name_of`).

        Raises:
            TypeError: a model without layers.
        """
        ...

    def bound(self, params: Tree, streams: Tree, state: Tree) -> Any:
        """The model as the user would call it without dropout, with these values in it."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Keywords:
    """Which inputs beside graph and features a model takes, by name.

    Attributes:
        names: those that its signature has.
        required: those of them without a default.
        any: whether it takes whatever there is (`**kwargs`).
    """

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    any: bool = False

    @classmethod
    def of(cls, call: inspect.Signature, *, given: int, apart: Collection[str] = ()) -> Keywords:
        """Those of a signature.

        Args:
            call: of the model.
            given: how many of its first parameters are passed by position.
            apart: names that are no data.
        """
        named = {
            name: entry.default is entry.empty
            for name, entry in list(call.parameters.items())[given:]
            if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)
            and name not in (*_TRAINING_FLAGS, *apart)
        }
        every = any(entry.kind is entry.VAR_KEYWORD for entry in call.parameters.values())
        return cls(tuple(named), tuple(name for name, required in named.items() if required), every)

    def taken(self, there: Collection[str], *, apart: Collection[str] = ()) -> tuple[str, ...]:
        """Those of the inputs that there are which the model takes; of those `apart` only what its signature names."""
        return tuple(sorted(name for name in there if name in self.names or (self.any and name not in apart)))


@final
@dataclasses.dataclass(frozen=True)
class ModelParts:
    """A model taken apart.

    Attributes:
        name: of its class or function.
        structure: its static half.
        params: what is trained.
        streams: random keys and counters, as they are before any epoch.
        state: what it keeps between epochs besides parameters (batch statistics, say), and constants.
        keywords: what it takes by name.
        switched_off: what of it does not train because of a flag of the model as a whole, and how to switch it on; empty
            where nothing such can be told.
    """

    name: str
    structure: Any
    params: Tree
    streams: Tree
    state: Tree
    keywords: Keywords = Keywords()
    switched_off: str = ""


def signature(tree: Tree) -> Any:
    """A hashable description of a tree of arrays: structure, shapes and dtypes."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple(jax.typeof(leaf) for leaf in leaves)


# What models call the argument that says whether they train, and its value when they do.
_TRAINING_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}


def training_flags(parameters: Collection[str], *, training: bool) -> dict[str, bool]:
    """The keyword by which a callable with these parameters is told whether it trains; {} if there is none."""
    found = [name for name in _TRAINING_FLAGS if name in parameters]
    return {name: _TRAINING_FLAGS[name] is training for name in found}


def flags_to_give(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, ...]:
    """The flags that a Flax module is to be called with: not those whose default None leaves it to its attributes."""
    return tuple(name for name, entry in parameters.items() if name in _TRAINING_FLAGS and entry.default is not None)
