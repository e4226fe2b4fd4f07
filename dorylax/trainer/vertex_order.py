"""The order of vertices in memory that one machine trains in.

Rows are gathered faster where neighbours lie close, as long as they do not all fit in cache anyway. The order changes
no vertex's id, so neither what dropout drops nor whose row is whose; sums over neighbours are added in another order,
which rounds otherwise. That holds for programs, which were proved to treat every row by itself. Any other function may hold
rows of its own (edges' ends, a table), which are in the order that was given.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Literal, final

import numpy as np

from dorylax.config.schema import Order
from dorylax.errors import DorylaxError
from dorylax.graph import partition
from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import release
from dorylax.graph.task_data import TaskData

CACHE_BYTES = 32 * 2**20
"""Features of more bytes than this do not count as fitting in cache."""

_reordered: weakref.WeakKeyDictionary[Dataset, Dataset] = weakref.WeakKeyDictionary()


@final
class OrderError(DorylaxError, ValueError):
    """An order of rows that a model cannot be trained in."""


def effective_order(
    order: Order, data: Dataset | TaskData | AbstractData, by_rows: Callable[[], bool]
) -> Literal["given", "community"]:
    """What an order means for a data set and what runs on it.

    Args:
        order: as asked for. "auto" is "community" where the features have more than `CACHE_BYTES` bytes, 4·V·F, unless the
            data were reordered already (that order was somebody's choice), and wherever `by_rows` does not hold.
        data: the data set.
        by_rows: whether all that would run on them, evaluations included, was proved to treat every row by itself; called
            only where that decides.

    Raises:
        OrderError: "community", and `by_rows` does not hold.
    """
    fits = 4 * data.features.size <= CACHE_BYTES or data.graph.vertex_ids is not None
    if order == "given" or (order == "auto" and fits):
        return "given"
    if by_rows():
        return "community"
    if order == "community":
        raise OrderError(
            "single.order=community needs a model that splits into graph tasks and stages, when it trains and when it is "
            "evaluated, and that returns a row per vertex: any other may hold rows in the order that was given. Use "
            "single.order=given"
        )
    return "given"


def is_ordered(data: Dataset) -> bool:
    """Whether the data set in order of communities is there already."""
    return data in _reordered


def in_order(data: Dataset | TaskData, order: Literal["given", "community"]) -> tuple[Dataset | TaskData, float]:
    """The data set in an order, and the seconds spent on it now: trainers of one data set share the result.

    The order of a large graph is kept in the cache directory for other processes; see `graph.partition.order_cache`. Of
    a memory-mapped data set nothing stays resident beside the reordered one.
    """
    if order == "given":
        return data, 0.0
    if isinstance(data, TaskData):
        raise OrderError(
            f"single.order={order} is for tasks of vertices, and {data.name} is a data set of {data.examples}"
        )
    if data in _reordered:
        return _reordered[data], 0.0
    begin = time.perf_counter()
    release(data.features)  # resident since they were checked, and not needed to find communities
    _reordered[data] = data.reorder(partition.cached_locality_order(data.graph))
    data.release()
    return _reordered[data], time.perf_counter() - begin


def rows_of(data: Dataset | TaskData, ordered: Dataset | TaskData) -> np.ndarray:
    """Where each row of a data set is in the same data in another order, `[V]`."""
    place = np.empty(data.graph.num_vertices, np.int64)
    place[_ids(ordered)] = np.arange(data.graph.num_vertices)
    rows: np.ndarray = place[_ids(data)]
    return rows


def _ids(data: Dataset | TaskData) -> np.ndarray:
    ids = data.graph.vertex_ids
    return np.arange(data.graph.num_vertices) if ids is None else np.asarray(ids)
