"""dorylax: full-graph training of graph neural networks on CPU servers and serverless workers, in JAX.

Importing this package is cheap: every name below is imported when it is first used, so that a process which needs only
one part (a worker's handler, say) never loads the others.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout `layers/` and its like lie beside this folder, in an installed package inside it. Both must import alike.
if (Path(__file__).parent.parent / "pyproject.toml").is_file():
    __path__.append(str(Path(__file__).parent.parent))

# Public name -> module that defines it.
_EXPORTS = {
    "__version__": "dorylax.version",
    "Dataset": "dorylax.graph.dataset",
    "DorylaxError": "dorylax.errors",
    "InputError": "dorylax.errors",
    "RunError": "dorylax.errors",
    "Graph": "dorylax.graph.graph",
    "load": "dorylax.graph.datasets",
    "Trainer": "dorylax.trainer",
    "RunConfig": "dorylax.config",
    "PipelineConfig": "dorylax.pipeline.config",
    "RayConfig": "dorylax.ray_cluster.config",
    "TensorConfig": "dorylax.serverless.config",
}
_SUBPACKAGES = ("clock", "cost", "experiments", "graph", "layers", "ops", "pipeline", "program", "serverless", "tasks")

if TYPE_CHECKING:
    from dorylax.config import RunConfig
    from dorylax.errors import DorylaxError, InputError, RunError
    from dorylax.graph.dataset import Dataset
    from dorylax.graph.datasets import load
    from dorylax.graph.graph import Graph
    from dorylax.pipeline.config import PipelineConfig
    from dorylax.ray_cluster.config import RayConfig
    from dorylax.serverless.config import TensorConfig
    from dorylax.trainer import Trainer
    from dorylax.version import __version__

__all__ = [
    "Dataset",
    "DorylaxError",
    "Graph",
    "InputError",
    "PipelineConfig",
    "RayConfig",
    "RunConfig",
    "RunError",
    "TensorConfig",
    "Trainer",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
        globals()[name] = value
        return value
    if name in _SUBPACKAGES:
        return importlib.import_module(f"dorylax.{name}")
    raise AttributeError(f"module 'dorylax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_SUBPACKAGES})
