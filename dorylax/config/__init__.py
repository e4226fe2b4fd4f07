"""The one description of a run, behind the command line, YAML files and Python alike.

`schema` defines the keys, `resolve` fills missing values from a recipe (`recipe`), and `files` reads keys from YAML with
line numbers.
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
