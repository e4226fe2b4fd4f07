"""Takes the user's model apart for the user's data: the inputs that it takes, and values of its parameters."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from flax import linen, nnx

from dorylax.errors import InputError
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.program.model import flax_linen
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree
from dorylax.program.model.kinds import keywords_of, name_of, take_apart
from dorylax.trainer.loop_state import to_host

Result = TypeVar("Result")


def parts_of(
    model: Any,
    data: Dataset | AbstractData,
    *,
    params: Tree = None,
    rngs: tuple[str, ...] = ("dropout",),
    seed: int = 0,
) -> ModelParts:
    """Return a model's parts, with values copied to the host.

    The copies allow `fit` to restart, and leave the user's model unchanged.

    Args:
        model: A Flax NNX or Linen module, or a function `f(params, graph, x, …)`.
        data: Data for the model; abstract arrays suffice, unless a Linen module needs initialisation.
        params: Parameters of a function; of a Linen module its parameters or variables, by default initialised.
        rngs: Names of the random streams of a Linen module.
        seed: Seed for initialising parameters.

    Raises:
        TypeError: The model is of another kind, the parameters are not the model's, or an NNX module is given parameters.
        ValueError: There are no parameters, or the data lack an input that the model needs.
    """
    if isinstance(model, nnx.Module) and params is not None:
        raise ModelKindError(f"params= is for Linen modules and functions: {type(model).__name__} holds its own")
    named = further_inputs(data, keywords_of(model), name_of(model))

    def taken(graph: CompressedGraph) -> ModelParts:
        return take_apart(model, graph, data.features, named=named, params=params, rngs=rngs)

    parts = with_ids_if_needed(data, taken)
    if isinstance(model, linen.Module):
        if params is None and isinstance(data, AbstractData):
            raise ModelKindError(
                f"{name_of(model)} is to be initialised on data, and there are only shards of them: give its parameters "
                "(params=)"
            )
        parts = with_ids_if_needed(
            data, lambda graph: flax_linen.initialised(parts, params, seed, graph, data.features, named=named)
        )
    return dataclasses.replace(parts, params=to_host(parts.params), state=to_host(parts.state))


def further_inputs(data: Dataset | AbstractData, keywords: Keywords, model: str = "the model") -> dict[str, Any]:
    """Return name → further input, for the inputs of a data set that a model takes, in the order of `DataSpec.named`.

    Raises:
        InputError: The data lack an input that the model needs.
    """
    there = {**data.vertex_inputs, **data.edge_inputs}
    for name in keywords.required:
        if name not in there:
            known = f"has {', '.join(sorted(there))}" if there else "has none"
            raise InputError(
                f"{model} needs the input {name!r}, and the data set {known}: give it as "
                f"Dataset(…, vertex_inputs={{{name!r}: …}}) or edge_inputs, or the argument a default"
            )
    return {name: there[name] for name in keywords.taken(there, apart=data.of_task)}


def with_ids_if_needed(data: Dataset | AbstractData, call: Callable[[CompressedGraph], Result]) -> Result:
    """Call a function on the graph without edge ids (up to 12 bytes per edge), or with them if that fails."""
    with contextlib.suppress(Exception):  # an error that is not about edge ids occurs again below
        return call(data.graph.without_edge_ids())
    return call(data.graph)
