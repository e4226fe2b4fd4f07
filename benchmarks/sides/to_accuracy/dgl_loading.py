"""DGL, loaded without its part that no newer torch can load.

The wheel of DGL 2.1, the last for this Python on the package index, has libraries of graphbolt for torch 2.0 to 2.2 and
loads one of them when it is imported. Neither its layers nor its classic loader (`dgl.dataloading`) need it, so an empty
module stands in its place.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any, final

import torch

from sides.to_accuracy.task import Task

os.environ.setdefault("DGLBACKEND", "pytorch")  # else it asks for a file in the home directory


@final
class _Absent(types.ModuleType):
    """A module that has a class by any name, since DGL names some of them as types."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def load_dgl() -> Any:
    """The library."""
    sys.modules.setdefault("dgl.graphbolt", _Absent("dgl.graphbolt"))
    import dgl

    return dgl


def graph_of(dgl: Any, task: Task) -> Any:
    """A task's graph, whose edges lie in both directions."""
    arrays = (
        torch.from_numpy(task.offsets),
        torch.from_numpy(task.neighbours).long(),
        torch.empty(0, dtype=torch.long),
    )
    return dgl.graph(("csc", arrays), num_nodes=task.num_vertices)
