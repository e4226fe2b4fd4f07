"""Takes a Flax Linen module apart. Abstract evaluation of `module.init` gives its parameters' shapes without data."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
from flax import linen, traverse_util

from dorylax.errors import InputError
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree, flags_to_give, training_flags
from dorylax.program.model.flax_nnx import flat, name_of


@final
@dataclasses.dataclass(frozen=True)
class LinenStructure:
    """Static part of a Linen model, without arrays.

    Attributes:
        module: The module in training mode, except for flags that the user set.
        evaluated: The module in evaluation mode, as far as its attributes set the mode.
        flags: Keywords that set the mode in a call.
    """

    module: linen.Module
    evaluated: linen.Module
    flags: tuple[str, ...]

    @classmethod
    def of(cls, module: linen.Module) -> LinenStructure:
        """Build the structure of a module: set flags stay for training, and flags of None follow the mode."""
        fields = [field.name for field in dataclasses.fields(module)]
        open_flags = [name for name in fields if getattr(module, name) is None]
        call = inspect.signature(module.__call__).parameters
        trained: dict[str, Any] = dict(training_flags(open_flags, training=True))
        evaluated: dict[str, Any] = dict(training_flags(fields, training=False))
        return cls(
            module.clone(**trained),
            module.clone(**evaluated),
            tuple(name for name in flags_to_give(call) if name not in fields),
        )

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """See `ModelStructure`."""
        variables = {"params": params, **state}
        named |= training_flags(self.flags, training=True)
        if not state:
            return self.module.apply(variables, graph, *inputs, rngs=streams, **named), {}
        output, updated = self.module.apply(variables, graph, *inputs, rngs=streams, mutable=sorted(state), **named)
        return output, {**state, **updated}

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """See `ModelStructure`."""
        del streams
        named |= training_flags(self.flags, training=False)
        return self.evaluated.apply({"params": params, **state}, graph, *inputs, **named)

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """See `ModelStructure`. Includes values that layers sow."""
        del streams
        named |= training_flags(self.flags, training=False)
        options: dict[str, Any] = {"capture_intermediates": True, "mutable": ["intermediates"]}
        _, kept = self.evaluated.apply({"params": params, **state}, graph, *inputs, **named, **options)
        found = traverse_util.flatten_dict(kept["intermediates"])  # type: ignore[no-untyped-call]
        return flat({name_of([part for part in path if part != "__call__"]): values for path, values in found.items()})

    def bound(self, params: Tree, streams: Tree, state: Tree) -> linen.Module:
        """Return the module with these variables; the caller still passes any flag in its call signature."""
        del streams
        return self.evaluated.bind({"params": params, **state})

    def init(self, key: Any, streams: Tree, graph: Any, *inputs: Any, **named: Any) -> dict[str, Tree]:
        """Return the module's initial variables."""
        named |= training_flags(self.flags, training=True)
        variables = dict(self.module.init({"params": key, **streams}, graph, *inputs, **named))
        variables.pop("intermediates", None)
        return variables


def take_apart(
    module: linen.Module,
    graph: Any,
    *inputs: Any,
    named: Mapping[str, Any] | None = None,
    rngs: tuple[str, ...] = ("dropout",),
) -> ModelParts:
    """Take a Linen module apart; parameters and state are abstract arrays (`jax.ShapeDtypeStruct`).

    Args:
        module: Module called as `module(graph, *inputs, **named)`, with a keyword `train`, `training`, `is_training` or
            `deterministic` if its signature has one.
        graph: Graph for its initialisation, of arrays or abstract arrays.
        inputs: Positional inputs for its initialisation.
        named: Keyword inputs for its initialisation.
        rngs: Names of its random streams other than `params`.

    Raises:
        ValueError: There are no parameters.
    """
    streams = {name: jax.random.key(k) for k, name in enumerate(rngs)}
    structure = LinenStructure.of(module)
    variables = jax.eval_shape(structure.init, jax.random.key(0), streams, graph, *inputs, **(named or {}))
    params = variables.pop("params", {})
    if not jax.tree.leaves(params):
        raise InputError(f"model {type(module).__name__} has no parameters: there is nothing to train")
    name = type(module).__name__
    keywords = Keywords.of(module.__call__, given=2)
    return ModelParts(name, structure, params, streams, variables, keywords, _switched_off(module))


def initialised(
    parts: ModelParts, variables: Tree, seed: int, graph: Any, *inputs: Any, named: Mapping[str, Any]
) -> ModelParts:
    """Replace abstract arrays with values.

    Args:
        parts: Parts of a Linen module.
        variables: Existing values: the parameters, or `{"params": …, "batch_stats": …}` with any other collections; None: no
            values.
        seed: Seed of newly drawn values.
        graph: Graph for the initialisation. Compilation removes the parts of the forward pass that no value depends on.
        inputs: Positional inputs for the initialisation.
        named: Keyword inputs for the initialisation.

    Raises:
        ValueError: The variables are not the module's; the message names the first difference.
    """
    shapes = {"params": parts.params, **parts.state}
    given = {} if variables is None else dict(variables) if "params" in variables else {"params": variables}
    for collection, tree in given.items():
        _check(parts.name, collection, tree, shapes.get(collection))
    found = given
    if shapes.keys() - given.keys():
        init = jax.jit(parts.structure.init)
        found = {**init(jax.random.key(seed), parts.streams, graph, *inputs, **named), **given}
    return dataclasses.replace(
        parts, params=found["params"], state={name: found[name] for name in sorted(shapes) if name != "params"}
    )


def _check(model: str, collection: str, given: Tree, wanted: Tree) -> None:
    """Compare shapes; the user chooses dtypes."""
    there, here = (
        {jax.tree_util.keystr(path): list(np.shape(leaf)) for path, leaf in jax.tree.leaves_with_path(tree)}
        for tree in (given, wanted)
    )
    for name in (*here, *there):
        if there.get(name) != here.get(name):
            found, needed = ("nothing" if shapes.get(name) is None else shapes[name] for shapes in (there, here))
            raise ModelKindError(f"params of {model}: {collection}{name} must be {needed}, got {found}")


def _switched_off(module: linen.Module) -> str:
    fields = [field.name for field in dataclasses.fields(module)]
    for name, value in training_flags(fields, training=False).items():
        if getattr(module, name) is value:
            return f"is made with {name}={value}, and trains so: give {name}={not value} where it should train as usual"
    return ""
