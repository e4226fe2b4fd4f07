"""The user's model, taken apart for the user's data: which inputs it takes, and values for its parameters."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, final

from flax import linen, nnx

from dorylax.errors import DorylaxError
from dorylax.graph.abstract import AbstractData
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.dataset import Dataset
from dorylax.graph.task_data import TaskData
from dorylax.program.model import flax_linen
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree
from dorylax.program.model.function import name_of
from dorylax.program.model.kinds import keywords_of, take_apart
from dorylax.trainer.loop_state import to_host

Result = TypeVar("Result")


@final
class MissingInputError(DorylaxError, ValueError):
    """The model needs an input that the data lack."""


def parts_of(
    model: Any,
    data: Dataset | TaskData | AbstractData,
    *,
    params: Tree = None,
    rngs: tuple[str, ...] = ("dropout",),
    seed: int = 0,
) -> ModelParts:
    """A model's parts, with values on the host: `fit` must be able to start again, and the user may go on with their own.

    Args:
        model: a Flax NNX or Linen module, or a function `f(params, graph, x, …)`.
        data: what it will run on; shapes alone will do, unless a Linen module has to be initialised.
        params: the parameters of a function; of a Linen module its parameters or variables, by default initialised.
        rngs: names of the random streams of a Linen module.
        seed: of parameters that are initialised here.

    Raises:
        TypeError: none of these kinds, parameters that are not the model's, or given apart for an NNX module.
        ValueError: no parameters, or an input that the model needs and the data lack.
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


def further_inputs(
    data: Dataset | TaskData | AbstractData, keywords: Keywords, model: str = "the model"
) -> dict[str, Any]:
    """The further inputs of a data set that a model takes, by name, in the order of `DataSpec.named`.

    Raises:
        MissingInputError: the model needs one that there is not.
    """
    there = {**data.vertex_inputs, **data.edge_inputs}
    for name in keywords.required:
        if name not in there:
            known = f"has {', '.join(sorted(there))}" if there else "has none"
            raise MissingInputError(
                f"{model} needs the input {name!r}, and the data set {known}: give it as "
                f"Dataset(…, vertex_inputs={{{name!r}: …}}) or edge_inputs, or the argument a default"
            )
    return {name: there[name] for name in keywords.taken(there, apart=made_by_task(data))}


def made_by_task(data: Dataset | TaskData | AbstractData) -> tuple[str, ...]:
    """Names of the inputs that only the task has made, so that a model gets them only by its signature."""
    return data.of_task if isinstance(data, TaskData) else ()


def with_ids_if_needed(data: Dataset | TaskData | AbstractData, call: Callable[[CompressedGraph], Result]) -> Result:
    """What a call gives on a graph without edge ids, which take up to 12 bytes an edge; with them where it needs them."""
    with contextlib.suppress(Exception):  # whatever else is wrong is raised again
        return call(data.graph.without_edge_ids())
    return call(data.graph)
