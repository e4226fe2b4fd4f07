"""What a model is to dorylax, whatever library wrote it: pure functions of trees of arrays."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, final, runtime_checkable

import jax

Tree = Any
"""Nested dicts (or other pytrees) of arrays, or of their shapes."""


class ModelKindError(TypeError):
    """Not a model of a kind that dorylax knows."""


class NoParametersError(ValueError):
    """A model without anything to train."""


@runtime_checkable
class Structure(Protocol):
    """The static half of a model, hashable: equal for two models of the same class, sizes and settings."""

    def apply_train(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> tuple[Any, Tree]:
        """One forward pass with dropout: the model's output and its new state."""
        ...

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any) -> Any:
        """One exact forward pass, without dropout and without updating anything: the model's output."""
        ...


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
    """

    name: str
    structure: Any
    params: Tree
    streams: Tree
    state: Tree


def signature(tree: Tree) -> Any:
    """A hashable description of a tree of arrays: structure, shapes and dtypes."""
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, tuple(jax.typeof(leaf) for leaf in leaves)


# What models call the argument that says whether they train, and its value when they do.
_TRAINING_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}


def training_flags(parameters: Any, *, training: bool) -> dict[str, bool]:
    """The keyword by which a callable with these parameters is told whether it trains; {} if there is none."""
    found = [name for name in _TRAINING_FLAGS if name in parameters]
    return {name: _TRAINING_FLAGS[name] is training for name in found}
