"""The order of vertices in memory that one machine trains in.

Rows are gathered faster where neighbours lie close, as long as they do not all fit in cache anyway. The order changes
no vertex's id, so neither what dropout drops nor whose row is whose; sums over neighbours are added in another order,
which rounds otherwise.
"""

from __future__ import annotations

import time
import weakref
from typing import Literal

from dorylax.graph.abstract import AbstractData
from dorylax.graph.dataset import Dataset
from dorylax.graph.mapped import release

Order = Literal["auto", "given", "community"]

CACHE_BYTES = 32 * 2**20
"""Features of more bytes than this do not count as fitting in cache."""

_reordered: weakref.WeakKeyDictionary[Dataset, Dataset] = weakref.WeakKeyDictionary()


def effective_order(
    order: Order, data: Dataset | AbstractData, *, reference: bool = False
) -> Literal["given", "community"]:
    """What an order means for a data set.

    Args:
        order: as asked for. "auto" is "community" where the features have more than `CACHE_BYTES` bytes, 4·V·F, unless the
            data were reordered already (that order was somebody's choice).
        data: the data set.
        reference: whether the plain model trains, which "auto" leaves as it is.
    """
    if order != "auto":
        return order
    graph = data.graph
    leave = reference or 4 * data.features.size <= CACHE_BYTES or graph.vertex_ids is not None
    return "given" if leave else "community"


def is_ordered(data: Dataset) -> bool:
    """Whether the data set in order of communities is there already."""
    return data in _reordered


def in_order(data: Dataset, order: Literal["given", "community"]) -> tuple[Dataset, float]:
    """The data set in an order, and the seconds spent on it now: trainers of one data set share the result.

    The order of a large graph is kept in the cache directory for other processes; see `graph.partition.kept_orders`. Of
    a memory-mapped data set nothing stays resident beside the reordered one.
    """
    if order == "given":
        return data, 0.0
    if data in _reordered:
        return _reordered[data], 0.0
    from dorylax.graph.partition import kept_locality_order

    begin = time.perf_counter()
    release(data.features)  # resident since they were checked, and not needed to find communities
    _reordered[data] = data.reorder(kept_locality_order(data.graph))
    data.release()
    return _reordered[data], time.perf_counter() - begin
