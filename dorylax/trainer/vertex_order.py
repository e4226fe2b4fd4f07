"""The order of vertices in memory in which one machine trains.

Gathers are faster if neighbours lie close together, unless all rows fit in the cache. The order changes no vertex's id, so
dropout drops the same elements and rows keep their owners. Sums over neighbours are added in another order, which changes
their rounding. This holds for programs, which provably treat every row by itself. Any other function may hold rows of its
own (edges' ends, a table) in the given order.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Literal

import numpy as np

from dorylax.config.schema import Order
from dorylax.errors import InputError
from dorylax.graph import partition
from dorylax.graph.data_shape import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import release

CACHE_BYTES = 32 * 2**20
"""Maximum bytes of features that count as fitting in the cache."""

_reordered: weakref.WeakKeyDictionary[Dataset, Dataset] = weakref.WeakKeyDictionary()


def effective_order(
    order: Order, data: Dataset | AbstractData, by_rows: Callable[[], bool]
) -> Literal["given", "community"]:
    """Resolve an order for a data set and a model.

    Args:
        order: The requested order. "auto" gives "community" if the features have more than `CACHE_BYTES` bytes (4·V·F), the
            data were not reordered before (by the user's choice), and `by_rows` holds; otherwise "given".
        data: The data set.
        by_rows: Whether all computations on the data, evaluations included, provably treat every row by itself; called
            only if the result depends on it.

    Raises:
        InputError: The order is "community", and `by_rows` does not hold.
    """
    fits = 4 * data.features.size <= CACHE_BYTES or data.graph.vertex_ids is not None
    if order == "given" or (order == "auto" and fits):
        return "given"
    if by_rows():
        return "community"
    if order == "community":
        raise InputError(
            "single.order=community needs a model that splits into graph tasks and stages, when it trains and when it is "
            "evaluated, and that returns a row per vertex: any other may hold rows in the order that was given. Use "
            "single.order=given"
        )
    return "given"


def is_ordered(data: Dataset) -> bool:
    """Whether the data set has already been put in community order."""
    return data in _reordered


def in_order(data: Dataset, order: Literal["given", "community"]) -> tuple[Dataset, float]:
    """Put the data set in an order; return it and the seconds spent now. Trainers of one data set share the result.

    The order of a large graph is cached on disk for other processes; see `graph.partition.locality`. The pages of a
    memory-mapped data set are released, so that only the reordered one stays resident.
    """
    if order == "given":
        return data, 0.0
    if data.examples != "vertices":
        raise InputError(
            f"single.order={order} is for tasks of vertices, and {data.name} is a data set of {data.examples}"
        )
    if data in _reordered:
        return _reordered[data], 0.0
    begin = time.perf_counter()
    release(data.features)  # resident since their check, and not needed to find communities
    _reordered[data] = data.reorder(partition.cached_locality_order(data.graph))
    data.release()
    return _reordered[data], time.perf_counter() - begin


def rows_of(data: Dataset, ordered: Dataset) -> np.ndarray:
    """Return the position of each row of a data set in the same data in another order, `[V]`."""
    place = np.empty(data.graph.num_vertices, np.int64)
    place[_ids(ordered)] = np.arange(data.graph.num_vertices)
    rows: np.ndarray = place[_ids(data)]
    return rows


def _ids(data: Dataset) -> np.ndarray:
    ids = data.graph.vertex_ids
    return np.arange(data.graph.num_vertices) if ids is None else np.asarray(ids)
