"""The one description of a run, behind the command line, YAML files and Python alike.

`schema` says which keys there are, `resolve` fills what is not given from the model's published recipe, `strict_yaml`
reads files with line numbers. What the keys do is up to `dorylax.trainer` and `dorylax.config.optimizers`.
"""

from __future__ import annotations

from dorylax.config.errors import ConfigError, did_you_mean
from dorylax.config.resolve import RunConfig
from dorylax.config.schema import DataConfig, ModelConfig, OptimizerConfig, PipelineSection, SingleConfig, TrainConfig

__all__ = [
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PipelineSection",
    "RunConfig",
    "SingleConfig",
    "TrainConfig",
    "did_you_mean",
]
