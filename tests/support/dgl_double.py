"""The part of the `dgl` module that a guide uses, for machines without DGL, by https://www.dgl.ai/dgl_docs."""

from __future__ import annotations

import types
from typing import Any


class Graph:
    """A homogeneous `dgl.DGLGraph`: edges in the order of their ids, and tensors by name."""

    is_homogeneous = True

    def __init__(self, ends: tuple[Any, Any]) -> None:
        self._ends = ends
        self.ndata: dict[str, Any] = {}
        self.edata: dict[str, Any] = {}

    def num_nodes(self) -> int:
        return 1 + max(int(end.max()) for end in self._ends)

    def edges(self, *, form: str, order: str) -> tuple[Any, Any]:
        assert (form, order) == ("uv", "eid")
        return self._ends


def module() -> types.ModuleType:
    """Returns a module with `graph`."""
    dgl = types.ModuleType("dgl")
    dgl.graph = Graph  # type: ignore[attr-defined]
    return dgl
