"""What a model is trained for, by name: the options of each task with their defaults, and the recipe that goes with it.

Plain data; `dorylax.tasks` has the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Fraction, Positive, Section


class TaskConfig(Section):
    """The task. An option that the task does not use may not be set."""

    section: ClassVar[str] = "task"

    name: (
        Literal[
            "vertex-classification", "vertex-regression", "link-prediction", "graph-classification", "graph-regression"
        ]
        | None
    ) = Field(
        default=None,
        description="the task, see docs/tasks.md; null: vertex-classification or vertex-regression, from the labels",
    )
    embedding: Count | None = Field(
        default=None, description="width of a vertex's row; the dot product of two rows is the score of a link"
    )
    val_fraction: Fraction | None = Field(default=None, description="share of the links for validation")
    test_fraction: Fraction | None = Field(default=None, description="share of the links for testing")
    apart: Fraction | None = Field(
        default=None,
        description="share of the training links that are predicted and carry no messages; 0: every link does both",
    )
    negatives: Literal["epoch", "fixed"] | None = Field(
        default=None, description="draw new negative pairs (pairs without a link) in each epoch, or fixed ones once"
    )
    negative_ratio: Positive | None = Field(default=None, description="negative pairs per link")
    readout: Literal["mean", "sum", "max"] | None = Field(
        default=None, description="how the rows of a graph's vertices are combined into one"
    )

    @model_validator(mode="after")
    def _check(self) -> TaskConfig:
        used = SPECS[self.name].options if self.name is not None else {}
        for option in type(self).options():
            if option != "name" and option not in used and getattr(self, option) is not None:
                own = f"whose options are {', '.join(used)}" if used else "which has no options"
                raise ConfigError(
                    f"task.{option} is not an option of "
                    + (
                        f"task {self.name}, {own}" if self.name is not None else "a task without a name: give task.name"
                    ),
                    f"task.{option}",
                )
        return self


class TaskSpec(NamedTuple):
    """A named task.

    Attributes:
        options: Its `task.*` options, with their defaults.
        recipe: Its changes of a model's recipe, dotted.
        of_vertices: Whether it predicts for each vertex, as pipelines require.
    """

    options: Mapping[str, Any] = MappingProxyType({})
    recipe: Mapping[str, Any] = MappingProxyType({})
    of_vertices: bool = True


_UNREGULARISED = {"model.dropout": 0.0, "optimizer.weight_decay": 0.0, "optimizer.weight_decay_on": "all"}
_GRAPHS = TaskSpec(
    MappingProxyType({"readout": "mean"}),
    MappingProxyType({"model.hidden_features": 64, **_UNREGULARISED, "data.row_normalise": False}),
    of_vertices=False,
)
_LINKS = TaskSpec(
    MappingProxyType(
        {
            "embedding": 16,
            "val_fraction": 0.05,
            "test_fraction": 0.1,
            "apart": 0.0,
            "negatives": "epoch",
            "negative_ratio": 1.0,
        }
    ),
    # Kipf & Welling's graph auto-encoder (arXiv 1611.07308).
    MappingProxyType({"model.hidden_features": 32, **_UNREGULARISED, "train.epochs": 200}),
    of_vertices=False,
)
SPECS: Mapping[str, TaskSpec] = MappingProxyType(
    {
        "vertex-classification": TaskSpec(),
        "vertex-regression": TaskSpec(),
        "link-prediction": _LINKS,
        "graph-classification": _GRAPHS,
        "graph-regression": _GRAPHS,
    }
)
"""The values of `task.name`."""
