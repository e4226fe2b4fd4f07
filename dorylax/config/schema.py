"""The sections of a run's configuration: data, model, training and one machine; and checks across all sections.

The model of each section defines types, bounds, defaults and meanings; docs/configuration.md shows them as tables. A
`model.*` or `optimizer.*` option is None if the chosen model or optimizer does not use it. `dorylax.layers.registry` and
`dorylax.config.optimizers` list the options of each model and optimizer.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from dorylax.config.optimizers import OptimizerConfig
from dorylax.config.tasks import SPECS, TaskConfig
from dorylax.machine import Limit, memory_limit
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.runs.metric import ACCURACIES, MetricName
from dorylax.serverless.config import TensorConfig
from dorylax.settings.byte_sizes import parse_bytes
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.section import CONTINUABLE, EXTERNAL, Count, Fraction, PathText, Positive, Section, Seed, Text
from dorylax.store.base import parse_place as parse

Order = Literal["auto", "given", "community"]
Gathered = Literal["float32", "bfloat16"]
MemoryCheck = Literal["check", "stream", "ignore"]


def _amount(text: str) -> str:
    """An amount of memory."""
    try:
        parse_bytes(text)
    except ValueError as error:
        raise ConfigError.of("single.memory_limit", f"is wrong: {error}") from None
    return text


class DataConfig(Section):
    """The graph, its features, labels and split."""

    section: ClassVar[str] = "data"

    name: Text = Field(
        default="communities",
        description="a built-in or downloadable data set (`dorylax datasets`), or the path of a folder",
    )
    size: str | None = Field(default=None, description="size of a built-in data set; null: its smallest ordinary size")
    row_normalise: bool = Field(default=False, description="scale each vertex's features to sum to 1")
    split_seed: Seed = Field(default=0, description="seed of the split of data that comes without masks")
    split: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="which split, from 0, where masks are `[V, K]` or `[K, V]`"
    )
    verify: bool = Field(
        default=True, description="compare the arrays of a folder with their checksums", json_schema_extra=EXTERNAL
    )


OWN = "model.options"
"""Section of the arguments of a user-defined model, by the names that its class has for them."""


def _option(usual: Any, description: str) -> Any:
    """Return the field of an option that is None unless the model uses it; a recipe may override its usual value."""
    return Field(default=None, description=description, json_schema_extra={"usual": usual})


class ModelConfig(Section):
    """The model. An option that the model does not use may not be set.

    Arguments of a user-defined model are further values, called `options.NAME`.
    """

    model_config = ConfigDict(extra="allow")
    section: ClassVar[str] = "model"

    name: str = Field(
        default="gcn",
        description="which model: one of those below, or yours as `FILE.py:CLASS` or `MODULE:CLASS`, with its arguments as "
        "`model.options.NAME`",
    )
    hidden_features: Count | None = _option(16, "width of the hidden layers, per head where there are heads")
    num_layers: Count | None = _option(
        2, "number of layers, the output layer included unless `jk` adds one; for gcnii, its convolutions"
    )
    dropout: Fraction | None = _option(0.5, "probability that an input of a layer is dropped in training")
    heads: Count | None = _option(8, "attention heads of the hidden layers")
    output_heads: Count | None = _option(1, "attention heads of the output layer, averaged")
    attention_dropout: Fraction | None = _option(
        0.6, "probability that an attention coefficient is dropped in training"
    )
    norm: Literal["none", "layer", "rms", "batch", "graph", "pair"] | None = _option(
        "none", "normalisation after each hidden layer"
    )
    residual: bool | None = _option(False, "add a layer's input to its output")
    jk: Literal["none", "concat", "max"] | None = _option(
        "none", "jumping knowledge: how the rows of all layers are combined for a linear output layer"
    )
    aggregation: Literal["mean", "sum", "max"] | None = _option("mean", "how neighbours are aggregated")
    train_epsilon: bool | None = _option(False, "learn the weight of a vertex's own features, from 0")
    share_weights: bool | None = _option(
        False, "share one matrix between both ends of an edge (gatv2), or a layer's rows and the first rows (gcnii)"
    )
    num_propagations: Count | None = _option(10, "number of propagation steps")
    alpha: Annotated[float, Field(ge=0, le=1)] | None = _option(
        0.1, "share of a vertex's first rows in each propagation"
    )
    theta: Positive | None = _option(0.5, "strength of the matrices, log(theta/l + 1) in layer l")
    edge_dropout: Fraction | None = _option(0.0, "probability that an edge is dropped from a propagation in training")

    @property
    def own(self) -> dict[str, Any]:
        """The arguments of a user-defined model, by its names for them."""
        return {key.partition(".")[2]: value for key, value in (self.model_extra or {}).items()}

    @classmethod
    def check(cls, option: str, value: Any) -> None:
        """See `Section.check`. Arguments of user-defined models are numbers, text, booleans, and lists of these."""
        key = cls.key(option)
        if not is_own(key):
            super().check(option, value)
            return
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, bool | int | float | str) or (isinstance(one, float) and not math.isfinite(one)):
                raise ConfigError.of(
                    key, f"must be a finite number, text, true or false, or a list of these, got {shown(value)}"
                )

    @model_validator(mode="after")
    def _check(self) -> ModelConfig:
        for option, value in (self.model_extra or {}).items():
            if not is_own(self.key(option)):
                raise self.unknown(option)
            self.check(option, value)
        return self


def _place(text: str) -> str:
    """Resolve a place of files, so that it is the same from any folder."""
    return str(parse(text))


class TrainConfig(Section):
    """How long to train, from which seed, and what to watch."""

    section: ClassVar[str] = "train"

    epochs: Count = Field(
        default=200, description="number of passes over the graph, one update each", json_schema_extra=CONTINUABLE
    )
    seed: Seed = Field(default=0, description="seed of the initial parameters and of dropout")
    eval_every: Count = Field(default=1, description="epochs between evaluations")
    loss: Literal["cross_entropy", "mse", "mae", "huber", "binary_cross_entropy"] | None = Field(
        default=None,
        description="loss per vertex, averaged over the training vertices; null: cross_entropy of classes, mse of "
        "targets, binary_cross_entropy of links",
    )
    metric: MetricName | None = Field(
        default=None,
        description="validation metric that selects the best epoch; null: accuracy, micro_f1 where a vertex may have "
        "several classes, roc_auc for links, and the loss for targets",
    )
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="stop when validation accuracy reaches this; null: never",
        json_schema_extra=CONTINUABLE,
    )
    target: float | None = Field(
        default=None,
        description="stop when the metric on the validation vertices is this good, be that higher or lower; null: never",
        json_schema_extra=CONTINUABLE,
    )
    patience: Count | None = Field(
        default=None,
        description="stop after this many epochs without a better validation metric; null: never",
        json_schema_extra=CONTINUABLE,
    )
    checkpoint_every: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="epochs between checkpoints; 0: only when interrupted and at the end",
        json_schema_extra=CONTINUABLE,
    )
    checkpoints: Annotated[Text, AfterValidator(_place)] | None = Field(
        default=None,
        description="where checkpoints go: a path or s3://bucket/prefix, with a separate folder per run; null: the run "
        "directory",
        json_schema_extra=EXTERNAL,
    )
    recipe: Text | None = Field(
        default=None,
        description="where values that are not given come from: default, published or tuned, or published/DATA or "
        "tuned/DATA, of another data set; null: published where it is the data set's, else default",
        json_schema_extra=EXTERNAL,
    )

    @model_validator(mode="after")
    def _check(self) -> TrainConfig:
        if self.target_accuracy is None:
            return self
        if self.target is not None:
            raise ConfigError(
                "train.target and train.target_accuracy exclude each other: for accuracies they are the same",
                "train.target",
            )
        if self.metric not in (None, *ACCURACIES):
            raise ConfigError.of(
                "train.target_accuracy",
                f"= {self.target_accuracy} needs an accuracy: with metric {self.metric} give train.target",
            )
        return self

    @property
    def goal(self) -> float | None:
        """The target of the validation metric; None without one."""
        return self.target_accuracy if self.target is None else self.target

    def evaluates(self, epoch: int) -> bool:
        """Whether epoch (from 0) ends with an evaluation: every `eval_every` epochs, and the last."""
        return self.evaluates_regularly(epoch) or epoch + 1 == self.epochs

    def evaluates_regularly(self, epoch: int) -> bool:
        """Whether epoch (from 0) would end with an evaluation also if it were not the last."""
        return (epoch + 1) % self.eval_every == 0

    def saves(self, epoch: int) -> bool:
        """Whether a checkpoint is due after epoch (from 0)."""
        return self.checkpoint_every > 0 and (epoch + 1) % self.checkpoint_every == 0


class SingleConfig(Section):
    """How one machine computes an epoch."""

    section: ClassVar[str] = "single"

    optimize: bool = Field(
        default=True,
        description="train with the optimised program (`dorylax.program`); "
        "false: plain `jax.value_and_grad` of the model, the reference",
    )
    order: Order = Field(
        default="auto",
        description="order of vertices in memory: as given, or by community, which gathers faster when rows do not fit "
        "in cache; auto: see below",
        json_schema_extra=CONTINUABLE,
    )
    gathered: Gathered = Field(
        default="float32",
        description="how an epoch stores the rows that it sums over neighbours: bfloat16 halves the bytes to read, and "
        "rounds; see below",
    )
    memory: MemoryCheck = Field(
        default="check",
        description="what to do when a run will need more memory than there is: check: stream its data from disk, or "
        "refuse it before it begins; stream: do so even where it fits, for the same bits whatever memory there is; "
        "ignore: try",
        json_schema_extra=EXTERNAL,
    )
    memory_limit: Annotated[Text, AfterValidator(_amount)] | None = Field(
        default=None,
        description="memory that a run may use, as 8GiB or 500MiB; null: all of the machine's or its control group's. A run "
        "that does not fit streams its data from disk",
        json_schema_extra=EXTERNAL,
    )
    scratch: PathText | None = Field(
        default=None,
        description="folder for the files of a run that streams; null: the run directory, or else the system's temporary "
        "folder",
        json_schema_extra=EXTERNAL,
    )

    @property
    def limit(self) -> Limit | None:
        """Memory that a run may use: the lesser of the setting and the machine's; None if both are unknown."""
        there = memory_limit()
        if self.memory_limit is None:
            return there
        asked = Limit(parse_bytes(self.memory_limit), "setting")
        return asked if there is None or asked.bytes < there.bytes else there

    @property
    def only_in_memory(self) -> str:
        """Reason why these settings need all rows in memory, and so exclude streaming; empty without one."""
        if not self.optimize:
            return "single.optimize=false trains on whole arrays"
        if self.order == "community":
            return "single.order=community holds the data twice: leave it out, or give data in that order (dorylax reorder)"
        return "" if self.gathered == "float32" else f"single.gathered={self.gathered} is for steps in memory"

    @model_validator(mode="after")
    def _check(self) -> SingleConfig:
        if self.memory == "stream" and self.only_in_memory:
            raise ConfigError.of("single.memory", f"= stream cannot be: {self.only_in_memory}")
        if self.optimize:
            return self
        if self.order == "community":
            raise ConfigError(
                "single.order=community and single.optimize=false exclude each other: only what was split is known not to "
                "hold rows in the order that was given. Use single.order=given",
                "single.order",
            )
        _check_gathered(self, "single.optimize=false")
        return self


SECTIONS: dict[str, type[Section]] = {
    model.section: model
    for model in (
        *(DataConfig, TaskConfig, ModelConfig, OptimizerConfig, TrainConfig, SingleConfig),
        *(PipelineConfig, TensorConfig, RayConfig),
    )
}
REFERENCES = ("model.name", "optimizer.name")
"""Keys that may name code of the user's own."""
NULL_SAYS_SOMETHING = ("data", "train", "single", "pipeline", "tensor", "ray")
"""Sections in which null is a value like others; in the rest it means that an option is not used."""


KEYS: dict[str, FieldInfo] = {
    model.key(name): field for model in SECTIONS.values() for name, field in model.options().items()
}
"""Dotted key → its field, in order."""


def is_own(key: str) -> bool:
    """Whether a dotted key is an argument of a user-defined model."""
    section, _, name = key.rpartition(".")
    return section == OWN and name.isidentifier()


def is_key(key: object) -> bool:
    """Whether a dotted key exists."""
    return isinstance(key, str) and (key in KEYS or is_own(key))


def check_together(
    train: TrainConfig, single: SingleConfig, pipeline: PipelineConfig | None, task: TaskConfig | None = None
) -> None:
    """Check the sections against each other.

    Raises:
        ConfigError: Settings of one machine exclude a pipeline, or a setting of `train` that a pipeline needs is missing.
    """
    if pipeline is None:
        return
    if task is not None and task.name is not None and not SPECS[task.name].of_vertices:
        raise ConfigError(
            f"task.name={task.name} and {_named(pipeline)} exclude each other: a pipeline predicts for each vertex",
            "task.name",
        )
    if not single.optimize:
        raise ConfigError(
            f"single.optimize=false and {_named(pipeline)} exclude each other: a pipeline runs the optimised program",
            "single.optimize",
        )
    if pipeline.switch_margin is not None and train.target_accuracy is None:
        raise ConfigError.of(
            "pipeline.switch_margin",
            f"= {pipeline.switch_margin} needs train.target_accuracy, from which it is measured",
        )
    _check_gathered(single, "a pipeline")
    for key, given in (("memory_limit", single.memory_limit is not None), ("memory", single.memory == "stream")):
        if given:
            raise ConfigError(
                f"single.{key}{'=stream' * (key == 'memory')} and {_named(pipeline)} exclude each other: servers hold their "
                "rows in memory, and only one machine without them streams. Leave one of them out",
                f"single.{key}",
            )


def _check_gathered(single: SingleConfig, other: str) -> None:
    """Refuse a storage of rows that another setting excludes."""
    if single.gathered != "float32":
        raise ConfigError(
            f"single.gathered={single.gathered} and {other} exclude each other: it needs one machine's optimised program",
            "single.gathered",
        )


def _named(pipeline: PipelineConfig) -> str:
    """Return the first given key of a pipeline: users may not expect that it creates one."""
    for part in pipeline.sections:
        for name in part.options():
            if name in part.model_fields_set:
                return part.key(name)
    return "a pipeline"
