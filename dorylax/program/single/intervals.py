"""Intervals: consecutive vertices, with the in-edges of each, whose edge ids are consecutive too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import numpy as np

from dorylax.graph.compressed import CompressedGraph, as_int64
from dorylax.program.jaxpr.symbols import Space


@final
@dataclasses.dataclass(frozen=True)
class Intervals:
    """A cut of the rows of both spaces.

    Attributes:
        bounds: interval k is rows `bounds[space][k]:bounds[space][k + 1]`.
    """

    bounds: dict[Space, tuple[int, ...]]

    @classmethod
    def of(cls, graph: CompressedGraph, vertex_bounds: Sequence[int]) -> Intervals:
        """Those between the given vertices: `[0, 10, 25, V]` makes three.

        Raises:
            ValueError: the bounds do not ascend from 0 to V.
        """
        bounds = tuple(int(bound) for bound in vertex_bounds)
        if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != graph.num_vertices or list(bounds) != sorted(bounds):
            raise ValueError(f"bounds of intervals must ascend from 0 to {graph.num_vertices}, got {list(bounds)}")
        offsets = as_int64(graph.incoming.offsets)
        return cls({"vertex": bounds, "edge": tuple(int(offsets[bound]) for bound in bounds)})

    @classmethod
    def even(cls, graph: CompressedGraph, count: int) -> Intervals:
        """`count` intervals of as many vertices each as the division allows."""
        return cls.of(graph, [int(bound) for bound in np.linspace(0, graph.num_vertices, count + 1).round()])

    def __len__(self) -> int:
        return len(self.bounds["vertex"]) - 1

    def largest(self, space: Space) -> int:
        """Rows of the largest interval: what all calls of a stage are padded to."""
        return int(np.diff(self.bounds[space]).max())
