"""The one description of a run, behind the command line, YAML files and Python alike.

`schema` says which keys there are, `resolve` fills what is not given from a recipe (`recipes`), `files` reads
them from YAML with line numbers. What the keys do is up to `dorylax.trainer` and `dorylax.config.optimizers`.
"""

from __future__ import annotations

from dorylax.config.optimizers import OptimizerConfig
from dorylax.config.resolve import RunConfig
from dorylax.config.schema import DataConfig, ModelConfig, SingleConfig, TrainConfig
from dorylax.settings.errors import ConfigError

__all__ = [
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RunConfig",
    "SingleConfig",
    "TrainConfig",
]
