"""Further inputs of a model: named arrays with a row per vertex or per edge, which reach it as keywords.

They come to three types, as JAX holds them: bool, int32 and float32.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dorylax.graph.arrays import as_array
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.validate import GraphError, as_held, check_length

# What a model is called with already: positions, the flags that say whether it trains, and Flax's own keywords.
RESERVED = frozenset(
    {
        *("graph", "x", "features", "labels", "self", "variables", "params"),
        *("train", "training", "is_training", "deterministic", "use_running_average"),
        *("rngs", "method", "mutable", "capture_intermediates"),
    }
)


def held_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a further input is held in: bool, int32 or float32."""
    return np.dtype({"b": np.bool_, "f": np.float32}.get(stored.kind, np.int32))


def checked_inputs(group: str, given: Any, num_rows: int, per: str) -> dict[str, np.ndarray]:
    """Named arrays `[num_rows, …]`, checked and converted to bool, int32 or float32, sorted by name.

    Args:
        group: Name of the argument, for messages.
        given: Arrays by name, in any form that `as_array` takes.
        num_rows: V or E.
        per: Reason of that length, as "one row per vertex".

    Raises:
        GraphError: A name that no keyword can have or that has another meaning, a wrong length or type, or a number that
            is not finite or does not fit.
    """
    _check_mapping(group, given)
    return {
        check_name(group, name): _rows(f"{group}[{name!r}]", given[name], num_rows, per)
        for name in sorted(given, key=str)
    }


def checked_edge_inputs(graph: CompressedGraph, given: Any) -> dict[str, np.ndarray]:
    """The values that came with a graph's edges, and those that are given, which override them; `[E, …]` each.

    Raises:
        GraphError: as `checked_inputs`, or there are inputs and the edges have no ids.
    """
    _check_mapping("edge_inputs", given)
    every = {**graph.edge_data, **given}
    if every:
        graph.require_edge_ids()
    return checked_inputs("edge_inputs", every, graph.num_edges, "one row per edge")


def check_apart(vertex_inputs: Iterable[str], edge_inputs: Iterable[str]) -> None:
    """No name is both a vertex's and an edge's: a model takes one argument of a name."""
    both = sorted(set(vertex_inputs) & set(edge_inputs))
    if both:
        raise GraphError(f"{both[0]!r} is in vertex_inputs and in edge_inputs: rename one, a model takes it by name")


def _check_mapping(group: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise GraphError(f"{group} must map names to arrays, as {{'pos': positions}}, got {type(given).__name__}")


def check_name(group: str, name: Any) -> str:
    """A name that a further input may have, as it is; a `GraphError` for any other."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise GraphError(
            f"{group} has the name {name!r}, which no keyword argument can have: rename it, as edge_weight"
        )
    if name in RESERVED:
        raise GraphError(f"{group} has the name {name!r}, which models are called with already: rename it")
    return name


def _rows(name: str, value: Any, num_rows: int, per: str) -> np.ndarray:
    array = as_array(name, value)
    check_length(name, array, num_rows, per)
    if array.size == 0 and num_rows:
        raise GraphError(f"{name} has shape {list(array.shape)}: expected at least one number per row")
    return as_held(name, array, held_dtype(array.dtype))
